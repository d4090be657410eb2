/** Start and stop of the nftables mode in a network namespace of its own; tests of the whole daemon cover the rest. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { beforeEach, test } from "node:test";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { type Logger, silentLogger } from "../../logging/logger.ts";
import { cleanUp } from "./cleanup.ts";

inNetns(import.meta.url, { name: "nftmode" }, () => {
  const nft = (input: string) => execFileSync("nft", ["-f", "-"], { input });
  const list = () => execFileSync("nft", ["list", "tables"], { encoding: "utf8" });
  beforeEach(() => nft("flush ruleset\n"));

  test("cleaning up removes the tables of both families, and no other", async () => {
    nft("add table ip kube-proxy\nadd table ip6 kube-proxy\nadd table inet kube-proxy\nadd table ip other\n");
    assert.equal(await cleanUp(silentLogger), true);
    assert.deepEqual(list().trim().split("\n").sort(), ["table inet kube-proxy", "table ip other"]);
  });

  test("where there is nothing to clean up, that is no failure", async () => {
    nft("add table ip6 kube-proxy\n");
    const errors: string[] = [];
    const log: Logger = { ...silentLogger, error: (message) => errors.push(message) };
    assert.equal(await cleanUp(log), true);
    assert.equal(await cleanUp(log), true);
    assert.equal(list(), "");
    assert.deepEqual(errors, []);
  });
});
