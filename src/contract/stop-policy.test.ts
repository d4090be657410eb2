import assert from "node:assert/strict";
import { test } from "node:test";
import { applyPlatformDefaults, EMPTY_DOCUMENT, resolveDocument } from "../agent/settings/defaults.ts";
import { checkConfig } from "../agent/settings/validate.ts";
import { modeNamed } from "../modes/registry.ts";
import { KEEPS_RULES } from "./stop-policy.ts";

test("only a daemon that carries the traffic may take longer to stop than the others, by what it was given", () => {
  for (const [mode, expected] of [
    ["iptables", KEEPS_RULES.limitMs],
    ["nftables", KEEPS_RULES.limitMs],
    ["userspace", KEEPS_RULES.limitMs + 10_000],
  ] as const) {
    const checked = checkConfig(applyPlatformDefaults(resolveDocument({ ...EMPTY_DOCUMENT, mode })));
    assert.ok(checked.ok);
    const policy = modeNamed(mode).stopPolicy?.(checked.config) ?? KEEPS_RULES;
    assert.equal(policy.limitMs, expected, mode);
    assert.equal(/rules stay/.test(policy.message), mode !== "userspace", mode);
  }
});

test("connections of userspace mode may go on for longer than a timer of Node.js can wait", () => {
  const checked = checkConfig(applyPlatformDefaults(resolveDocument({ ...EMPTY_DOCUMENT, mode: "userspace" })));
  assert.ok(checked.ok);
  const { config } = checked;
  const policy = modeNamed("userspace").stopPolicy?.({
    ...config,
    userspace: { ...config.userspace, drainTimeoutMs: 2 ** 32 },
  });
  assert.equal(policy?.limitMs, 2 ** 31 - 1, "a longer one ends at once");
});
