import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "../../testkit/support/fast-check.ts";
import {
  INT32,
  joinErrors,
  parseGoBool,
  parseGoFloat32,
  parseGoInteger,
  quoteGo,
  toFloat32,
  VERBOSITY,
} from "./go-text.ts";

describe("Go's texts", () => {
  it("quotes control characters and leaves printable Unicode alone", () => {
    assert.equal(quoteGo('a"b\\c\n\t\u0001\u007f'), '"a\\"b\\\\c\\n\\t\\x01\\x7f"');
    assert.equal(quoteGo("größe 😀\u200b"), '"größe 😀\\u200b"');
  });

  it("reads exactly the twelve booleans", () => {
    for (const word of ["1", "t", "T", "true", "TRUE", "True"])
      assert.deepEqual(parseGoBool(word), { ok: true, value: true });
    for (const word of ["0", "f", "F", "false", "FALSE", "False"]) {
      assert.deepEqual(parseGoBool(word), { ok: true, value: false });
    }
    assert.deepEqual(parseGoBool("yes"), {
      ok: false,
      error: 'strconv.ParseBool: parsing "yes": invalid syntax',
    });
  });

  it("reads 32-bit integers in every base", () => {
    const cases: readonly (readonly [string, number])[] = [
      ["0", 0],
      ["-999", -999],
      ["+7", 7],
      ["0x1F", 31],
      ["0b101", 5],
      ["0o17", 15],
      ["017", 15],
      ["1_000", 1000],
      ["-2147483648", -2147483648],
    ];
    for (const [text, value] of cases) assert.deepEqual(parseGoInteger(text, INT32), { ok: true, value }, text);
  });

  it("tells a wrong integer from one out of range", () => {
    const error = (text: string) => {
      const read = parseGoInteger(text, INT32);
      return read.ok ? "" : read.error;
    };
    assert.equal(error("2147483648"), 'strconv.ParseInt: parsing "2147483648": value out of range');
    for (const text of ["", "1.5", "08", "0x", "abc", " 1"]) {
      assert.equal(error(text), `strconv.ParseInt: parsing ${quoteGo(text)}: invalid syntax`);
    }
    assert.deepEqual(parseGoInteger("-1", VERBOSITY), {
      ok: false,
      error: 'strconv.ParseUint: parsing "-1": invalid syntax',
    });
  });

  it("keeps the shortest decimal of a 32-bit float", () => {
    assert.equal(toFloat32(0.1), 0.1);
    assert.equal(toFloat32(16777217), 16777216);
    assert.deepEqual(parseGoFloat32("1e39"), {
      ok: false,
      error: 'strconv.ParseFloat: parsing "1e39": value out of range',
    });
    fc.assert(
      fc.property(fc.float({ noNaN: true, noDefaultInfinity: true }), (value) => {
        // Adding 0 turns a negative zero into zero, as the reader does.
        assert.equal(Math.fround(toFloat32(value)), value + 0);
      }),
    );
  });

  it("prints one error bare and several in brackets, each once", () => {
    assert.equal(joinErrors(["a"]), "a");
    assert.equal(joinErrors(["a", "b", "a"]), "[a, b]");
  });
});
