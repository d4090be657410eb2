import assert from "node:assert/strict";
import { test } from "node:test";
import { joinFamilies, type Rendered } from "./rendering.ts";

const text = (tool: string | undefined, content: string): Rendered => ({ kind: "text", tool, text: content });

test("texts for different tools say which; others follow each other as they are", () => {
  const save = [text("iptables-save", "*nat\n"), text("ip6tables-save", "*filter\n")];
  assert.equal(joinFamilies(save), "# iptables-save\n*nat\n# ip6tables-save\n*filter\n");
  assert.equal(joinFamilies([text(undefined, "a\n"), text(undefined, "b\n")]), "a\nb\n");
  assert.equal(joinFamilies(save.slice(0, 1)), "*nat\n");
});
