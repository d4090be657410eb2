/** The userspace mode: the proxy carries the bytes itself. Upstream lost it with v1.26. Reference userspace.md §1. */
import type { ModeDescriptor } from "../dataplane.ts";
import { KEEPS_RULES } from "../stop-policy.ts";
import { userspaceConfig } from "./config.ts";

export const userspace: ModeDescriptor<"userspace", typeof userspaceConfig> = {
  name: "userspace",
  platforms: ["linux", "win32"],
  isUpstream: false,
  config: userspaceConfig,
  startMessage: "Using userspace Proxier.",
  unavailableText: "iptables is not available on this host; --userspace-rules=none goes without ",
  usesNetfilter: ({ userspace: { rules } }) => rules !== "none",
  stopPolicy: ({ userspace: { drainTimeoutMs } }) => ({
    message: "Stopping; no new connections are taken, and those there are may end",
    limitMs: KEEPS_RULES.limitMs + drainTimeoutMs,
  }),
  traits: {
    // The answer to a datagram comes from 127.0.0.1, which is not the address that the rules wrote into the question.
    localhostNodePorts: ["TCP"],
    refusesNodeAtExternalAddresses: true,
    carriesTraffic: true,
    hasVirtualServers: false,
    hasHostLoadBalancers: false,
    checksSourcesFirst: false,
    decidesAtSocket: [],
  },
  renderForms: ["text", "json", "iptables-save"],
  traceForms: ["tables"],
  loadRenderer: async () => (await import("./render.ts")).renderUserspace,
  loadInspection: async () => (await import("./inspect.ts")).inspectUserspace,
  loadRuntime: async () => (await import("./runtime.ts")).userspaceRuntime,
};
