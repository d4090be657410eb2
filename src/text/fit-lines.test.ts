import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../testkit/support/fast-check.ts";
import { COMMANDS } from "../tools/cli/commands.ts";
import { usageOf } from "../tools/cli/subcommand-options.ts";
import { fitHelp, fitLines } from "./fit-lines.ts";

const words = (text: string): string => text.split(/\s+/).join(" ");

test("a long line is broken between words, and goes on where it began", () => {
  assert.equal(fitLines("  one two three\nfour\n", 10), "  one two\n  three\nfour\n");
  assert.equal(fitLines("a word-that-is-longer-than-all b", 10), "a\nword-that-is-longer-than-all\nb");
  assert.equal(fitLines("one two three", undefined), "one two three");
});

test("nothing is lost, and no line is longer than its longest word needs", () => {
  fc.assert(
    fc.property(
      fc.array(fc.stringMatching(/^[a-z]{1,12}$/)),
      fc.nat(8),
      fc.integer({ min: 24, max: 60 }),
      (list, indent, width) => {
        const text = `${" ".repeat(indent)}${list.join(" ")}`;
        const fitted = fitLines(text, width);
        assert.equal(words(fitted), words(text));
        for (const line of fitted.split("\n")) assert.ok(line.length <= width, line);
      },
    ),
  );
});

test("the help of every command fits 80 columns, but for commands to copy, and says the same", async () => {
  for (const { name, load } of COMMANDS) {
    const usage = usageOf((await load()).line);
    const fitted = fitHelp(usage, 80);
    assert.equal(words(fitted), words(usage), name);
    const long = fitted
      .split("\n")
      .filter((line) => line.length > 80 && !/^ {2,}(?:kube-proxy|kubectl|bin\/)/.test(line));
    assert.deepEqual(long, [], name);
  }
});
