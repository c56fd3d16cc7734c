// KafkaJS; see ../README.md. It reads in groups only, so `consume` is a group of its own.
const fs = require('node:fs')
const path = require('node:path')
const readline = require('node:readline')
const { setTimeout: sleep } = require('node:timers/promises')
const { Kafka, CompressionTypes, CompressionCodecs } = require('kafkajs')
const snappy = require('kafkajs-snappy')
const lz4 = require('lz4-napi')
const zstd = require('@mongodb-js/zstd')

CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: buffer => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: encoder => zstd.compress(encoder.buffer),
  decompress: buffer => zstd.decompress(buffer),
})
const CODECS = { none: 'None', gzip: 'GZIP', snappy: 'Snappy', lz4: 'LZ4', zstd: 'ZSTD' }

const emit = line => process.stdout.write(JSON.stringify(line) + '\n')
const record = (prefix, n) => ({ key: `${n}`, value: `${prefix}-${n}-${'x'.repeat(100)}` })
const stdinEnded = () => new Promise(resolve => process.stdin.on('end', resolve).resume())
// What librdkafka would read from the file of CLIENT_CONFIG.
function logIn() {
  if (!process.env.CLIENT_CONFIG) return {}
  const lines = fs.readFileSync(process.env.CLIENT_CONFIG, 'utf8').split('\n')
  const told = Object.fromEntries(lines.map(l => [l.slice(0, l.indexOf('=')), l.slice(l.indexOf('=') + 1)]))
  const found = {}
  if (told['ssl.ca.location']) found.ssl = { ca: [fs.readFileSync(told['ssl.ca.location'], 'utf8')] }
  if (told['ssl.key.location']) {
    found.ssl.key = fs.readFileSync(told['ssl.key.location'], 'utf8')
    found.ssl.cert = fs.readFileSync(told['ssl.certificate.location'], 'utf8')
  }
  if (told['sasl.mechanism']) {
    const { 'sasl.username': username, 'sasl.password': password } = told
    found.sasl = { mechanism: told['sasl.mechanism'].toLowerCase(), username, password }
  }
  return found
}
const connect = (bootstrap, also = {}) =>
  new Kafka({
    ...logIn(),
    ...also,
    brokers: bootstrap.split(','),
    retry: { retries: 20 }, // its five are over in nine seconds
    logCreator: () => entry => console.error(JSON.stringify(entry)),
  })

async function produce(bootstrap, topic, prefix, count, codec) {
  const producer = connect(bootstrap).producer()
  await producer.connect()
  const messages = Array.from({ length: Number(count) }, (_, n) => record(prefix, n))
  await producer.send({ topic, messages, compression: CompressionTypes[CODECS[codec]] })
  messages.forEach((_, n) => emit({ acknowledged: n }))
  await producer.disconnect()
}

async function load(bootstrap, topic, prefix) {
  const producer = connect(bootstrap).producer()
  await producer.connect()
  let ended = false
  stdinEnded().then(() => (ended = true))
  const sent = []
  for (let n = 0; !ended; n++) {
    sent.push(producer.send({ topic, messages: [record(prefix, n)], acks: -1 }).then(() => emit({ acknowledged: n })))
    await sleep(50)
  }
  await Promise.all(sent)
  await producer.disconnect()
}

async function read(bootstrap, topics, groupId, onRecord, readUncommitted = false) {
  const consumer = connect(bootstrap).consumer({ groupId, readUncommitted })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    emit({ assigned: topics.flatMap(t => payload.memberAssignment[t] ?? []).sort() })
  })
  await consumer.connect()
  await consumer.subscribe({ topics, fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ topic, partition, message }) => {
      emit({ record: [topic, partition, Number(message.offset), `${message.key}`, `${message.value}`] })
      onRecord()
    },
  })
  return consumer
}

async function consume(bootstrap, topics, count, isolation) {
  let left = Number(count)
  let done
  const all = new Promise(resolve => (done = resolve))
  const told = () => --left || done()
  const consumer = await read(
    bootstrap, topics.split(','), `alone-${process.pid}`, told, isolation === 'read_uncommitted')
  await all
  await consumer.disconnect()
}

async function group(bootstrap, topic, groupId) {
  const consumer = await read(bootstrap, [topic], groupId, () => {})
  await stdinEnded()
  await consumer.disconnect()
}

const transactional = async (bootstrap, transactionalId, transactionTimeout = 60000, also = {}) => {
  const producer = connect(bootstrap, also).producer({ transactionalId, transactionTimeout })
  await producer.connect()
  return producer
}

async function transactions(bootstrap) {
  const producers = {}
  const open = {}
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [name, verb, ...rest] = line.split(' ')
    try {
      if (verb === 'init') producers[name] = await transactional(bootstrap, rest[0], Number(rest[1]))
      else if (verb === 'begin') open[name] = await producers[name].transaction() // its first one asks for the id too
      else if (verb === 'send') {
        const [topic, partition, key, prefix] = rest
        await open[name].send({ topic, messages: [{ ...record(prefix, key), partition: Number(partition) }] })
      } else if (verb === 'offsets') {
        const [consumerGroupId, topic, partition, offset] = rest
        const topics = [{ topic, partitions: [{ partition: Number(partition), offset }] }]
        await open[name].sendOffsets({ consumerGroupId, topics })
      } else await open[name][verb]()
      emit({ done: verb })
    } catch (e) {
      emit({ failed: `${e}` })
    }
  }
}

// Copies a batch in a transaction with the offset of its group; the first one is taken back.
function copying(producer, source, sink, consumerGroupId) {
  let first = true
  return async ({ partition, messages }, resolveOffset) => {
    const transaction = await producer.transaction()
    await transaction.send({ topic: sink, messages: messages.map(({ key, value }) => ({ key, value, partition })) })
    const offset = `${Number(messages.at(-1).offset) + 1}`
    await transaction.sendOffsets({ consumerGroupId, topics: [{ topic: source, partitions: [{ partition, offset }] }] })
    if (first) {
      first = false
      await transaction.abort() // what is not resolved is read again
    } else {
      await transaction.commit()
      resolveOffset(messages.at(-1).offset)
    }
  }
}

async function copy(bootstrap, source, sink, groupId) {
  const producer = await transactional(bootstrap, groupId)
  const consumer = connect(bootstrap).consumer({ groupId })
  await consumer.connect()
  await consumer.subscribe({ topics: [source], fromBeginning: true })
  const copyBatch = copying(producer, source, sink, groupId)
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: ({ batch, resolveOffset }) => copyBatch(batch, resolveOffset),
  })
  await stdinEnded()
  await consumer.disconnect()
  await producer.disconnect()
}

// It reads in groups only: one member, whose offsets are asked for once, as a later answer may lack a transaction that is not
// quite ended. So it ends whenever it would join again, and whenever anything fails.
async function copyOne(bootstrap, source, sink, name, number) {
  const producer = await transactional(bootstrap, name, 60000, { clientId: name })
  await (await producer.transaction()).abort() // which asks for the producer id, and for nothing else
  const consumer = connect(bootstrap, { clientId: name }).consumer({ groupId: name, sessionTimeout: 15000 })
  const end = why => {
    console.error(`${why}`)
    process.exit(1)
  }
  let joined = false
  consumer.on(consumer.events.GROUP_JOIN, () => (joined ? end('would join again') : (joined = true)))
  consumer.on(consumer.events.CRASH, ({ payload }) => end(payload.error))
  await consumer.connect()
  await consumer.subscribe({ topics: [source], fromBeginning: true })
  const copyBatch = copying(producer, source, sink, name)
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset }) => {
      if (batch.partition === Number(number)) await copyBatch(batch, resolveOffset).catch(end)
      else resolveOffset(batch.messages.at(-1).offset)
    },
  })
  await stdinEnded()
  await consumer.disconnect()
  await producer.disconnect()
}

// Not exported by the package, so read from where it was found.
const home = path.join(require.resolve('kafkajs'), '..', 'package.json')
emit({ client: `KafkaJS ${JSON.parse(fs.readFileSync(home)).version}` })
const [command, ...args] = process.argv.slice(2)
// A failure ends the process with 1, as Node does of itself; what is left open by success does not keep it alive.
;({ produce, load, consume, group, transactions, copy, 'copy-one': copyOne })[command](...args).then(() => process.exit(0))
