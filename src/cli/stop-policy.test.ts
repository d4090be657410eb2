import assert from "node:assert/strict";
import { test } from "node:test";
import { applyPlatformDefaults, EMPTY_DOCUMENT, resolveDocument } from "../config/defaults.ts";
import { checkConfig } from "../config/validate.ts";
import { KEEPS_RULES, stopPolicyOf } from "./stop-policy.ts";

test("only a daemon that carries the traffic may take longer to stop than the others, by what it was given", () => {
  for (const [mode, expected] of [
    ["iptables", KEEPS_RULES.limitMs],
    ["nftables", KEEPS_RULES.limitMs],
    ["userspace", KEEPS_RULES.limitMs + 10_000],
  ] as const) {
    const checked = checkConfig(applyPlatformDefaults(resolveDocument({ ...EMPTY_DOCUMENT, mode })));
    assert.ok(checked.ok);
    const policy = stopPolicyOf(checked.config);
    assert.equal(policy.limitMs, expected, mode);
    assert.equal(/rules stay/.test(policy.message), mode !== "userspace", mode);
  }
});
