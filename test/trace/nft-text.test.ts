/** Rules of upstream's dumps, in the JSON of `nft -j`, are shown in the words in which `nft` lists them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isObject, listOf, textOf } from "../../src/kernel/nftables/json.ts";
import { ruleText } from "../../src/kernel/nftables/json-text.ts";
import { caseFile, caseNames } from "../conformance/conformance-case.ts";

/** The lines of rules in a listing. */
function listedRules(listing: string): string[] {
  return listing
    .split("\n")
    .flatMap((line) =>
      /^\t\t(?!type |elements|\t|comment|size|flags|timeout|packets )/.test(line) ? [line.trim()] : [],
    );
}

for (const name of caseNames()) {
  test(name, () => {
    const { nftables } = JSON.parse(caseFile(name, "nftables/nft.json"));
    const shown = listOf(nftables).flatMap((object) => {
      const rule = isObject(object) ? object.rule : undefined;
      return isObject(rule) ? [ruleText(listOf(rule.expr), textOf(rule.comment))] : [];
    });
    assert.ok(shown.length > 10);
    assert.deepEqual(shown.sort(), listedRules(caseFile(name, "nftables/nft.txt")).sort());
  });
}
