import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import { type Logger, silentLogger } from "../../logging/logger.ts";
import { ip } from "../../model/testing/records.ts";
import type { IpFamily } from "../../net/ip.ts";
import { applyPlatformDefaults, EMPTY_DOCUMENT, resolveDocument } from "../settings/defaults.ts";
import { checkConfig } from "../settings/validate.ts";
import { type ModeSupport, setUpNode } from "./node-setup.ts";

function config(overrides: Partial<KubeProxyConfig> = {}): KubeProxyConfig {
  const checked = checkConfig({ ...applyPlatformDefaults(resolveDocument(EMPTY_DOCUMENT)), ...overrides });
  assert.ok(checked.ok);
  return checked.config;
}

/** A mode that serves only these families; IPv6 is left out where the answer would depend on this machine. */
function modeFor(...families: readonly IpFamily[]): ModeSupport {
  return {
    unavailableText: "nothing is available on this host ",
    unsupported: async (family) =>
      families.includes(family) ? undefined : { message: "No support for family", error: `${family} is missing` },
  };
}

function recorder() {
  const lines: string[] = [];
  const log: Logger = {
    ...silentLogger,
    info: (message, facts) => void lines.push(`${message} ${JSON.stringify(facts ?? {})}`),
    error: (message, error) => void lines.push(`${message}: ${String(error)}`),
    with: () => log,
  };
  return { lines, log };
}

const node = { nodeIPs: [ip("10.200.0.2")], podCIDRs: ["10.180.0.0/24"] };

test("a node with one usable family runs single-stack, on the addresses of its Node object", async () => {
  const { lines, log } = recorder();
  const setup = await setUpNode(config({ nodePortAddresses: ["primary"] }), node, modeFor("IPv4"), log);
  assert.deepEqual(setup.families, ["IPv4"]);
  assert.equal(setup.addresses.ips.IPv4, "10.200.0.2");
  assert.deepEqual(setup.nodePortAddresses, ["10.200.0.2/32"]);
  assert.deepEqual(setup.podCIDRs, node.podCIDRs);
  assert.deepEqual(setup.unsupported, [{ what: "IPv6 services", why: "IPv6 is missing" }]);
  const text = lines.join("\n");
  assert.match(text, /No support for family {"ipFamily":"IPv6","error":"IPv6 is missing"}/);
  assert.match(text, /kube-proxy running in single-stack mode {"ipFamily":"IPv4"}/);
});

test("without a Node object it assumes loopback and says which flag helps", async () => {
  const { lines, log } = recorder();
  const setup = await setUpNode(config(), { nodeIPs: [], podCIDRs: [] }, modeFor("IPv4"), log);
  assert.equal(setup.addresses.ips.IPv4, "127.0.0.1");
  assert.match(lines.join("\n"), /assuming loopback; if this is incorrect, please set the --bind-address flag/);
});

test("a node whose own family cannot be served does not start", async () => {
  const v6 = { nodeIPs: [ip("fd00::2")], podCIDRs: [] };
  await assert.rejects(
    setUpNode(config(), v6, modeFor("IPv4"), silentLogger),
    /no support for primary IP family "IPv6"/,
  );
});

test("when no family can be served, the error says why for each", async () => {
  await assert.rejects(
    setUpNode(config(), node, modeFor(), silentLogger),
    /^Error: nothing is available on this host : IPv4 is missing; IPv6 is missing$/,
  );
});

test("a configuration for the other family only is fatal, one that lacks something is not", async () => {
  const wrong = config({ detectLocal: { ...config().detectLocal, clusterCIDRs: ["fd00:180::/48"] } });
  await assert.rejects(setUpNode(wrong, node, modeFor("IPv4"), silentLogger), /clusterCIDR/i);
  const { lines, log } = recorder();
  await setUpNode(config(), node, modeFor("IPv4"), log);
  assert.match(
    lines.join("\n"),
    /Kube-proxy configuration may be incomplete or incorrect: .*nodePortAddresses is unset/,
  );
});
