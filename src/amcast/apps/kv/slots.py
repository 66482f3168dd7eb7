"""Which group has a key: Redis' hash slots, cut into one run of slots per group."""

from binascii import crc_hqx

SLOTS = 16384


def slot_of(key: bytes) -> int:
    """Return the CRC16 (XMODEM) mod 16384 of a key, or of what its first braces hold, if that is not empty."""
    if (start := key.find(b"{")) >= 0 and (end := key.find(b"}", start + 1)) > start + 1:
        key = key[start + 1 : end]
    return crc_hqx(key, 0) % SLOTS


def group_of_slot(slot: int, groups: int) -> int:
    return min(slot, SLOTS - 1) * groups // SLOTS


def group_of(key: bytes, groups: int) -> int:
    return slot_of(key) * groups // SLOTS


def first_slot(group: int, groups: int) -> int:
    return -(-group * SLOTS // groups)
