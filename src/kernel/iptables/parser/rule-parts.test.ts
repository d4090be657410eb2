import assert from "node:assert/strict";
import { test } from "node:test";
import { commentOf, protocolOf, targetOf } from "./rule-parts.ts";

test("parts of a rule are found wherever they stand, with anything else in it", () => {
  const rule =
    '-d 10.0.0.1/32 -p udp -m comment --comment "ns/web:http cluster IP" -m exotic --foo -j KUBE-SVC-A --bar 1';
  assert.deepEqual(
    [targetOf(rule), protocolOf(rule), commentOf(rule)],
    ["KUBE-SVC-A", "udp", "ns/web:http cluster IP"],
  );
  assert.deepEqual(
    [targetOf("-g KUBE-A"), protocolOf("-p tcp"), commentOf("--comment ns/web")],
    ["KUBE-A", "tcp", "ns/web"],
  );
  assert.deepEqual([targetOf(""), protocolOf("! -p tcp -j A"), commentOf("-j A")], [undefined, undefined, undefined]);
});

test("words in quotes are no options", () => {
  const rule = '-m comment --comment "a \\" -j KUBE-B -p tcp" -p sctp -j KUBE-A';
  assert.deepEqual([targetOf(rule), protocolOf(rule), commentOf(rule)], ["KUBE-A", "sctp", 'a " -j KUBE-B -p tcp']);
  assert.equal(targetOf('-p tcp -m comment --comment "x" -j LOG --log-prefix "to -j KUBE-B "'), "LOG");
});
