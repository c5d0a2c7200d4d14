"""What a hostile node uploads: Flower's objects of any shape, not only those that it makes.

After ``hostile/fleet.py`` of the security test. Used in process (:mod:`tests.in_process.parts`)
and by a node of its own (``tests/failures/hostile_node.py``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.common.serde_utils import metadata_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_id

from common import records

MB = 2**20


@dataclass
class Upload:
    """A message as its parts.

    Attributes
    ----------
    root : str
        Id of the message's own part.
    parts : dict[str, bytes]
        Contents by id; children before parents, as nodes send them.
    never : set[str]
        Announced, but not uploaded.
    every : float
        Seconds between two parts.
    """

    root: str
    parts: dict[str, bytes] = field(default_factory=dict)
    never: set[str] = field(default_factory=set)
    every: float = 0.0

    def tree(self, object_id: str = "") -> ObjectTree:
        """Return the tree that a node announces."""
        key = object_id or self.root
        children = dict.fromkeys(_children(self.parts[key]))
        known = [child for child in children if child in self.parts]
        return ObjectTree(object_id=key, children=[self.tree(child) for child in known])


def _children(content: bytes) -> list[str]:
    try:
        _, children, _ = content[: content.index(b"\0")].decode().split(" ")
    except ValueError:
        return []
    return [child for child in children.split(",") if child]


def upload_of(message: Message) -> Upload:
    """Return what an honest node uploads."""
    objects = get_all_nested_objects(message)
    return Upload(message.object_id, {key: each.deflate() for key, each in objects.items()})


def part(kind: str, children: Sequence[str], body: bytes, length: int | None = None) -> bytes:
    """Return a part: its head, and its body."""
    head = f"{kind} {','.join(children)} {len(body) if length is None else length}"
    return head.encode() + b"\0" + body


def rooted(reply: Message, *contents: bytes, children: Sequence[str] | None = None) -> Upload:
    """Return an upload of parts below a message with the honest metadata; the last is its child."""
    keys = [get_object_id(content) for content in contents]
    metadata = metadata_to_proto(reply.metadata)
    metadata.message_id = ""
    body = ProtoMessage(metadata=metadata).SerializeToString(deterministic=True)
    root = part("Message", keys[-1:] if children is None else children, body)
    key = get_object_id(root)
    return Upload(key, {**dict(zip(keys, contents, strict=True)), key: root})


def _alone(content: bytes) -> Upload:
    key = get_object_id(content)
    return Upload(key, {key: content})


def with_array(reply: Message, array: bytes, *chunks: bytes) -> Upload:
    """Return the honest upload with another first array."""
    honest = upload_of(reply)
    arrays = reply.content.array_records[records.ARRAYS]
    content = RecordDict(dict(reply.content.items()))
    first = arrays[next(iter(arrays))].object_id
    record = arrays.deflate().replace(first.encode(), get_object_id(array).encode())
    whole = content.deflate().replace(arrays.object_id.encode(), get_object_id(record).encode())
    gone = {arrays.object_id, content.object_id, honest.root}
    kept = [each for key, each in honest.parts.items() if key not in gone]
    used = first.encode() in record  # two arrays may have equal values
    kept = [each for each in kept if used or get_object_id(each) != first]
    return rooted(reply, *kept, *chunks, array, record, whole)


def array_part(
    chunks: Sequence[bytes], shape: object, indices: object, dtype: str = "<f4"
) -> bytes:
    """Return an Array that says so of itself."""
    said = {"dtype": dtype, "shape": shape, "stype": "numpy.ndarray", "arraychunk_ids": indices}
    return part("Array", [get_object_id(each) for each in chunks], json.dumps(said).encode())


def _chunk(data: bytes) -> bytes:
    return part("ArrayChunk", [], data)


def no_objects(reply: Message) -> Upload:
    upload = upload_of(reply)
    upload.never = set(upload.parts)
    return upload


def half(reply: Message) -> Upload:
    """All but one part, which never comes."""
    upload = upload_of(reply)
    upload.never = {next(iter(upload.parts))}
    return upload


def drip(reply: Message) -> Upload:
    upload = upload_of(reply)
    upload.every = 20.0
    return upload


def child_unknown(reply: Message) -> Upload:
    return rooted(reply, children=["ab" * 32])


def custom_class(reply: Message) -> Upload:
    return _alone(part("CustomDataClass", [], b"x"))


def not_a_message(reply: Message) -> Upload:
    return _alone(_chunk(b"x"))


def message_without_content(reply: Message) -> Upload:
    return rooted(reply, children=[])


def array_shape_text(reply: Message) -> Upload:
    chunk = _chunk(b"x" * 10)
    return with_array(reply, array_part([chunk], ["a"], [0]), chunk)


def array_bomb(reply: Message) -> Upload:
    """A megabyte that unfolds to 100 GB."""
    chunk = _chunk(b"\0" * MB)
    return with_array(reply, array_part([chunk], [1], [0] * 100_000), chunk)


def big(reply: Message) -> Upload:
    arrays = dict(reply.content.array_records[records.ARRAYS])
    arrays["huge"] = Array(np.frombuffer(os.urandom(40 * MB), np.uint8))
    reply.content[records.ARRAYS] = ArrayRecord(arrays)
    return upload_of(reply)


def spoof_src(reply: Message) -> Upload:
    reply.metadata.__dict__["_src_node_id"] = 123456789
    return upload_of(reply)


def spoof_reply_to(reply: Message) -> Upload:
    reply.metadata.__dict__["_reply_to_message_id"] = "ab" * 32
    return upload_of(reply)


def truncated_chunk(reply: Message) -> Upload:
    arrays = reply.content.array_records[records.ARRAYS]
    first = arrays[next(iter(arrays))]
    chunk = _chunk(first.data[: len(first.data) // 2])
    return with_array(reply, array_part([chunk], list(first.shape), [0], first.dtype), chunk)


def own_child(reply: Message) -> Upload:
    """No hash does that; a SuperLink that does not check it might hand it over."""
    content = part("RecordDict", ["cd" * 32], b"{}")
    upload = rooted(reply, children=["cd" * 32])
    upload.parts["cd" * 32] = content
    return upload


def records_5000(reply: Message) -> Upload:
    for number in range(5000):
        reply.content[f"c{number}"] = ConfigRecord({"x": number})
    return upload_of(reply)


def long_name(reply: Message) -> Upload:
    reply.content["n" * (8 * MB)] = ConfigRecord({"x": 1})
    return upload_of(reply)


def deep(reply: Message) -> Upload:
    contents = [part("ConfigRecord", [], b"")]
    for _ in range(50):
        below = get_object_id(contents[-1])
        contents.append(part("RecordDict", [below], json.dumps({"x": below}).encode()))
    return rooted(reply, *contents)


def same_child_twice(reply: Message) -> Upload:
    content = reply.content
    upload = upload_of(reply)
    del upload.parts[upload.root]
    rest = list(upload.parts.values())
    return rooted(reply, *rest, children=[content.object_id, content.object_id])


def wrong_length(reply: Message) -> Upload:
    return rooted(reply, part("RecordDict", [], b"{}", length=2**60))


def objects_array(reply: Message) -> Upload:
    chunk = _chunk(
        b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    )
    return with_array(reply, array_part([chunk], [1], [0], "|O"), chunk)


def negative_shape(reply: Message) -> Upload:
    chunk = _chunk(b"\0" * 64)
    return with_array(reply, array_part([chunk], [-5], [0]), chunk)


def no_chunks(reply: Message) -> Upload:
    return with_array(reply, array_part([], [0], []))


def indices_million(reply: Message) -> Upload:
    chunk = _chunk(b"x")
    return with_array(reply, array_part([chunk], [1], [0] * 4_000_000), chunk)


def index_text(reply: Message) -> Upload:
    chunk = _chunk(b"x")
    return with_array(reply, array_part([chunk], [1], ["0"]), chunk)


def json_nested(reply: Message) -> Upload:
    chunk = _chunk(b"x")
    body = b'{"arraychunk_ids": ' + b"[" * 200_000
    return with_array(reply, part("Array", [get_object_id(chunk)], body), chunk)


def text_30mb(reply: Message) -> Upload:
    reply.content["s"] = ConfigRecord({"x": "A" * (30 * MB)})
    return upload_of(reply)


def error_30mb(reply: Message) -> Upload:
    return upload_of(
        Message(error=Error(6, "E" * (30 * MB)), metadata=reply.metadata)  # type: ignore[call-overload]
    )


def numbers_in_text(reply: Message) -> Upload:
    """Ten million labels, of which each would be an object in memory."""
    reply.content["l"] = ConfigRecord({"x": [1] * 10_000_000})
    return upload_of(reply)


def chunk_with_children(reply: Message) -> Upload:
    inner = _chunk(b"x")
    chunk = part("ArrayChunk", [get_object_id(inner)], b"x")
    return with_array(reply, array_part([chunk], [1], [0]), inner, chunk)


def array_as_record(reply: Message) -> Upload:
    chunk = _chunk(b"x")
    array = array_part([chunk], [1], [0])
    body = json.dumps({"arrays": get_object_id(array)}).encode()
    return rooted(reply, chunk, array, part("RecordDict", [get_object_id(array)], body))


def head_of_bytes(reply: Message) -> Upload:
    return rooted(reply, b"\xff\xfe\xfd \xff 3\0abc")


def no_protobuf(reply: Message) -> Upload:
    config = part("ConfigRecord", [], b"\xff" * 50)
    body = json.dumps({"reply": get_object_id(config)}).encode()
    return rooted(reply, config, part("RecordDict", [get_object_id(config)], body))


Attack = Callable[[Message], Upload]

UNREADABLE: dict[Attack, str] = {
    custom_class: "'CustomDataClass' where a Message belongs",
    not_a_message: "'ArrayChunk' where a Message belongs",
    message_without_content: "IndexError",
    array_shape_text: "Invalid arguments for Array",
    array_bomb: "unfold to 1000",
    big: "bytes in one part",
    own_child: "'RecordDict' where a",
    records_5000: "at least 5005 parts",
    long_name: "bytes in one part",
    deep: "'RecordDict' where a",
    same_child_twice: "Mismatch in children",
    indices_million: "bytes in one part",
    index_text: "TypeError",
    json_nested: "RecursionError",
    text_30mb: "bytes in one part",
    error_30mb: "bytes in one part",
    numbers_in_text: "bytes in one part",
    chunk_with_children: "where an ArrayChunk belongs",
    array_as_record: "'Array' where a",
    head_of_bytes: "UnicodeDecodeError",
    no_protobuf: "DecodeError",
}
"""Attacks that no unpacking survives, with a part of the reason."""

USELESS: dict[Attack, str] = {
    objects_array: "can't be read",
    wrong_length: "which round it answers",  # a SuperLink checks the length itself
    truncated_chunk: "can't be read",
    negative_shape: "can't be read",
    no_chunks: "can't be read",
}
"""Attacks that can be unpacked, and are refused for what is in them."""

HARMLESS: tuple[Attack, ...] = (spoof_src, spoof_reply_to)
"""Lies about what nobody looks at."""

ABSENT: tuple[Attack, ...] = (no_objects, half, drip)
"""Replies that never are there whole."""

LOST: tuple[Attack, ...] = (child_unknown,)
"""Replies of which the SuperLink has no more."""

ATTACKS = {each.__name__: each for each in (*UNREADABLE, *USELESS, *HARMLESS, *ABSENT, *LOST)}
