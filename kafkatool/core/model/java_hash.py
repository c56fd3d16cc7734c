"""Hashes as Java computes them: brokers of any kind must find a group, or a fetcher, in the same place (GRP-1, BRK-64)."""


def java_int(value: int) -> int:
    """Return the value as Java's 32-bit int: wrapped around, signed."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def java_string_hash(text: str) -> int:
    """Compute ``String.hashCode``: over UTF-16 code units."""
    result = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        result = (31 * result + unit) & 0xFFFFFFFF
    return java_int(result)


def java_bucket(hash_code: int, buckets: int) -> int:
    """Return ``Utils.abs(hash_code) % buckets``, where the abs of -2^31 is 0."""
    return (0 if hash_code == -(1 << 31) else abs(hash_code)) % buckets
