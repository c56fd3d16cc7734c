// KafkaJS; see ../README.md. It reads in groups only, so `consume` is a group of its own.
const fs = require('node:fs')
const path = require('node:path')
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
const stdinEnded = new Promise(resolve => process.stdin.on('end', resolve).resume())
const connect = bootstrap =>
  new Kafka({ brokers: bootstrap.split(','), logCreator: () => entry => console.error(JSON.stringify(entry)) })

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
  stdinEnded.then(() => (ended = true))
  const sent = []
  for (let n = 0; !ended; n++) {
    sent.push(producer.send({ topic, messages: [record(prefix, n)], acks: -1 }).then(() => emit({ acknowledged: n })))
    await sleep(50)
  }
  await Promise.all(sent)
  await producer.disconnect()
}

async function read(bootstrap, topics, groupId, onRecord) {
  const consumer = connect(bootstrap).consumer({ groupId })
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

async function consume(bootstrap, topics, count) {
  let left = Number(count)
  let done
  const all = new Promise(resolve => (done = resolve))
  const consumer = await read(bootstrap, topics.split(','), `alone-${process.pid}`, () => --left || done())
  await all
  await consumer.disconnect()
}

async function group(bootstrap, topic, groupId) {
  const consumer = await read(bootstrap, [topic], groupId, () => {})
  await stdinEnded
  await consumer.disconnect()
}

// Not exported by the package, so read from where it was found.
const home = path.join(require.resolve('kafkajs'), '..', 'package.json')
emit({ client: `KafkaJS ${JSON.parse(fs.readFileSync(home)).version}` })
const [command, ...args] = process.argv.slice(2)
// A failure ends the process with 1, as Node does of itself; what is left open by success does not keep it alive.
;({ produce, load, consume, group })[command](...args).then(() => process.exit(0))
