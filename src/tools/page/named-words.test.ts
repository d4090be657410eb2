import assert from "node:assert/strict";
import { test } from "node:test";
import { namesAround, servicesOf, wordsIn } from "./named-words.ts";

test("the parts of a text are the text, and its words those without closing signs", () => {
  const text = "2001:db8::1 belongs to shop/web:http, which answers (node-a). service=a/b: no.";
  assert.equal(wordsIn(text).join(""), text);
  const words = wordsIn(text).filter((_, index) => index % 2 === 1);
  for (const name of ["2001:db8::1", "shop/web:http", "node-a", "a/b", "no"]) assert.ok(words.includes(name), name);
  assert.ok(!words.includes("shop/web"));
});

test("names are those of the endpoints, this node and the owners of addresses", () => {
  const endpoints = [
    { pod: "shop/web-1", node: "node-b" },
    { pod: null, node: "" },
  ];
  const names = namesAround({ node: "node-a", endpoints, frontends: [{ owner: null }, { owner: "shop/api:http" }] });
  assert.deepEqual(
    [...names],
    [
      ...[["shop/web-1", "pod"] as const, ["node-b", "node"] as const],
      ...[["shop/api:http", "service"] as const, ["node-a", "node"] as const],
    ],
  );
});

test("a failure's subject is a Service, or none", () => {
  const names = servicesOf(["shop/web:http", "watch of services", "start", "", "<b>/x y"]);
  assert.deepEqual([...names.keys()], ["shop/web:http"]);
});
