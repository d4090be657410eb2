/**
 * A conformance case as the model of one family: its state through the same projection, selectors and trackers as live
 * objects.
 */
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { withoutNodePortWords } from "../../src/contract/config/node-port-words.ts";
import { CURRENT_RELEASE, type Release, releaseOf } from "../../src/contract/config/release.ts";
import { silentLogger } from "../../src/logging/logger.ts";
import { detectorFor, type LocalTrafficDetector } from "../../src/model/local-traffic-detector.ts";
import { effectiveNodeAddresses, type NodeAddresses, nodeIPsOf, primaryCidrs } from "../../src/model/node-identity.ts";
import { type NodePortAddresses, nodePortAddresses } from "../../src/model/node-port-addresses.ts";
import type { NodeRecord } from "../../src/model/objects.ts";
import { isEndpointSliceSelected, projectEndpointSlice } from "../../src/model/projection/endpoint-slice.ts";
import type { Projection } from "../../src/model/projection/findings.ts";
import { projectNode } from "../../src/model/projection/kinds.ts";
import { isServiceSelected, projectService } from "../../src/model/projection/service.ts";
import { ProxyState } from "../../src/model/proxy-state.ts";
import { localhostServiceOf } from "../../src/modes/nftables/localhost-node-ports.ts";
import type { IpFamily } from "../../src/net/ip.ts";

const CASES = new URL("cases/", import.meta.url);

/** The captured cluster's; API servers make this object from their flags, so it is not among the case's. */
export const SERVICE_CIDR_OBJECT = {
  apiVersion: "networking.k8s.io/v1",
  kind: "ServiceCIDR",
  metadata: { name: "kubernetes" },
  spec: { cidrs: ["10.96.0.0/12", "fd00:10:96::/108"] },
};

/** The parts of the configuration that vary among cases. */
export interface CaseConfig {
  readonly detectLocalMode: string;
  readonly clusterCIDR: string;
  readonly detectLocal?: { readonly bridgeInterface?: string; readonly interfaceNamePrefix?: string };
  readonly masqueradeAll?: boolean;
  readonly masqueradeBit?: number;
  readonly localhostNodePorts?: boolean;
  readonly nodePortAddresses?: readonly string[];
  readonly featureGates?: Readonly<Record<string, boolean>>;
}

export interface CaseState {
  readonly config: CaseConfig;
  readonly node: unknown;
  readonly services: readonly unknown[];
  readonly slices: readonly unknown[];
}

/** One case as one family of a proxy on node-a sees it. */
export interface CaseModel {
  readonly config: CaseConfig;
  readonly node: NodeRecord;
  readonly addresses: NodeAddresses;
  readonly detector: LocalTrafficDetector;
  readonly nodePortAddresses: NodePortAddresses;
  readonly state: ProxyState;
}

/** `v1.36/cluster-ip`, …: what each release left in the kernel. A name without a release is the current one's. */
export function caseNames(): string[] {
  return ["v1.36", "v1.37"].flatMap((release) =>
    readdirSync(new URL(release, CASES))
      .sort()
      .map((name) => `${release}/${name}`),
  );
}

/** The release of a case. */
export function caseRelease(name: string): Release {
  return releaseOf({ compatibility: name.split("/")[0] ?? "" });
}

/** The protocols of node ports that nftables mode refuses on loopback addresses. */
export function caseRejectedAtLocalhost(name: string, { config, nodePortAddresses: addresses }: CaseModel) {
  const { featureGates = {} } = config;
  const settings = {
    featureGates,
    compatibility: caseRelease(name).name,
  };
  return localhostServiceOf(settings, addresses)?.rejected ?? [];
}

function caseText(name: string, file: string): string {
  return readFileSync(new URL(`${name}/${file}`, CASES), "utf8");
}

/** A file of a case; to the configuration of its run the release is added, which upstream does not know as a setting. */
export function caseFile(name: string, file: string): string {
  const path = name.includes("/") ? name : `${CURRENT_RELEASE.name}/${name}`;
  if (!file.endsWith("config.yaml")) return caseText(path, file);
  return JSON.stringify({ ...JSON.parse(caseText(path, file)), compatibility: caseRelease(path).name });
}

/** States that both releases have met are stored once. */
export function caseState(name: string): CaseState {
  const [, bare = name] = name.split("/");
  const release = existsSync(new URL(`v1.37/${bare}/state.json`, CASES)) ? "v1.37" : "v1.36";
  return JSON.parse(caseText(`${release}/${bare}`, "state.json"));
}

function projected<T>(projection: Projection<T>): T {
  assert.ok(projection.ok, JSON.stringify(projection));
  return projection.record;
}

/** @param defaultNodePortAddresses what the mode does with an empty list: `["primary"]` in nftables mode. */
export function caseModel(name: string, family: IpFamily, defaultNodePortAddresses: readonly string[]): CaseModel {
  const { config, node: rawNode, services, slices } = caseState(name);
  const node = projected(projectNode(rawNode));
  const state = new ProxyState({
    family,
    nodeName: node.name,
    allowExternalIPs: true,
    now: () => 0,
    log: silentLogger,
  });
  for (const raw of services) {
    if (isServiceSelected(raw)) state.onService({ kind: "add", object: projected(projectService(raw)) });
  }
  for (const raw of slices) {
    if (isEndpointSliceSelected(raw))
      state.onEndpointSlice({ kind: "add", object: projected(projectEndpointSlice(raw)) });
  }
  state.applyChanges();
  const addresses = effectiveNodeAddresses(nodeIPsOf(node), "0.0.0.0");
  const { detector } = detectorFor(family, {
    mode: config.detectLocalMode,
    clusterCIDRs: config.clusterCIDR.split(","),
    podCIDRs: node.podCIDRs,
    bridgeInterface: config.detectLocal?.bridgeInterface ?? "",
    interfaceNamePrefix: config.detectLocal?.interfaceNamePrefix ?? "",
  });
  const configured = config.nodePortAddresses ?? defaultNodePortAddresses;
  return {
    config,
    node,
    addresses,
    detector,
    nodePortAddresses: nodePortAddresses(family, withoutNodePortWords(configured, primaryCidrs(addresses))),
    state,
  };
}
