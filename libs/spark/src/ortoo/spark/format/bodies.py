"""Columns with the decoded bodies of messages.

    from ortoo.spark.format import bodies

    frame.withColumn("order", bodies.json("id bigint, name string"))

Each body is decoded separately, so that an invalid body does not affect other rows. `on_invalid` is the action for an
invalid body. `fail` ends the query, and `null` makes the value null. For text, `replace` puts U+FFFD in place of
invalid UTF-8.
"""

from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf

from ortoo.common.errors import Invalid, Unsupported

_CORRUPT = "_corrupt_record"


def text(body: str = "body", *, on_invalid: str = "fail") -> Column:
    """A column with the body as text. Errors: Invalid for an `on_invalid` other than fail, null and replace."""
    as_text = sf.col(body).cast("string")
    checks = {"fail": sf.validate_utf8, "null": sf.try_validate_utf8, "replace": sf.make_valid_utf8}
    return checks[_choice(on_invalid, *checks)](as_text)


def json(schema: str = "", *, sample: str | bytes = "", body: str = "body", on_invalid: str = "fail") -> Column:
    """The body as a struct, parsed from JSON.

    `schema` has the fields as DDL, such as "id bigint, name string". Without `schema`, the fields are inferred from the
    body `sample`. Errors: Invalid without both.
    """
    if not schema:
        if not sample:
            raise Invalid('expected the fields, such as "id bigint, name string", or a body as sample', field="schema")
        sample_text = sample if isinstance(sample, str) else sample.decode()
        row = SparkSession.active().sql("select schema_of_json(:sample) as found", {"sample": sample_text}).first()
        assert row is not None
        schema = str(row.found).removeprefix("STRUCT<").removesuffix(">")
    body_text = text(body, on_invalid=on_invalid)
    if _choice(on_invalid, "fail", "null") == "fail":
        return sf.from_json(body_text, f"struct<{schema}>", {"mode": "FAILFAST"})
    parsed = sf.from_json(body_text, f"struct<{schema}, {_CORRUPT} string>", {"columnNameOfCorruptRecord": _CORRUPT})
    return sf.when(parsed[_CORRUPT].isNull(), parsed.dropFields(_CORRUPT))


def avro(schema: str, *, body: str = "body", on_invalid: str = "fail") -> Column:
    """The body as an Avro record of `schema` (JSON); needs Spark's package `spark-avro` on the class path."""
    from pyspark.sql.avro.functions import from_avro

    mode = "FAILFAST" if _choice(on_invalid, "fail", "null") == "fail" else "PERMISSIVE"
    return from_avro(sf.col(body), schema, {"mode": mode})


def protobuf(message: str, descriptor_file: str, *, body: str = "body", on_invalid: str = "fail") -> Column:
    """The body as a protobuf message of a descriptor file; needs Spark's package `spark-protobuf`."""
    from pyspark.sql.protobuf.functions import from_protobuf

    mode = "FAILFAST" if _choice(on_invalid, "fail", "null") == "fail" else "PERMISSIVE"
    return from_protobuf(sf.col(body), message, descriptor_file, {"mode": mode})


def msgpack(schema: str, *, body: str = "body", on_invalid: str = "fail") -> Column:
    """The body as a struct, from MessagePack maps; `schema` as for `json`. Needs Spark 4.1, and msgpack on executors.

    An absent field is null; a field of another type makes the body invalid.
    """
    try:
        from pyspark.sql.functions import arrow_udf
    except ImportError as error:
        raise Unsupported("MessagePack is decoded with Spark 4.1 or newer, which has functions over Arrow") from error
    null = _choice(on_invalid, "fail", "null") == "null"

    def unpacked(column: pa.Array) -> pa.Array:
        import msgpack

        def one(packed: bytes | None) -> Any:
            if packed is None:
                return pa.nulls(1, kind)
            try:
                value = msgpack.unpackb(packed)
                if value is not None and not isinstance(value, dict):
                    raise TypeError(f"{type(value).__name__} instead of a map")
                return pa.array([value], kind)
            except (ValueError, TypeError, msgpack.UnpackException) as error:
                if null:
                    return pa.nulls(1, kind)
                raise ValueError(
                    f"a body is not MessagePack with the fields {schema} ({error}); set on_invalid=null"
                ) from error

        return pa.concat_arrays([one(each.as_py()) for each in column]) if len(column) else pa.array([], kind)

    from pyspark.sql.pandas.types import to_arrow_type

    field = SparkSession.active().sql(f"select cast(null as struct<{schema}>) as found").schema["found"]
    # Spark 4.1 does not have this parameter yet and behaves as with it.
    zone = {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}
    kind = to_arrow_type(field.dataType, **zone)
    return arrow_udf(unpacked, f"struct<{schema}>")(sf.col(body))


def _choice(given: str, *allowed: str) -> str:
    if given not in allowed:
        raise Invalid(f"{given!r}; expected {' or '.join(allowed)}", field="on_invalid")
    return given
