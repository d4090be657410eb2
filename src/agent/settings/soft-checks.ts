/**
 * Start-up checks of a configuration against the node: what is legal but probably not intended, and what cannot work
 * with the node's IP families. The caller logs or ends the process. Reference configuration.md §6.
 */

import { splitHostPort } from "../../contract/config/bind-address.ts";
import type { DraftConfig } from "../../contract/config/config.ts";
import { familyOf, type IpFamily, isUnspecified, parseCidr, parseIpAddress } from "../../net/ip.ts";
import { joinErrors } from "../../text/go-text.ts";

/** The log message for the result of either check if it is not fatal. */
export const INCOMPLETE_CONFIG_MESSAGE = "Kube-proxy configuration may be incomplete or incorrect";

/** What the node adds to the configuration. */
export interface NodeFacts {
  readonly primaryFamily: IpFamily;
  readonly podCIDRs: readonly string[];
}

/** The result of the family check; a fatal one ends the process with {@link fatalFamilyText}. */
interface FamilyProblem {
  readonly message: string;
  readonly fatal: boolean;
}

const otherFamily = (family: IpFamily): IpFamily => (family === "IPv4" ? "IPv6" : "IPv4");

function familiesOf(cidrs: readonly string[]): readonly (IpFamily | undefined)[] {
  return cidrs.map((text) => {
    const cidr = parseCidr(text.trim());
    return cidr === undefined ? undefined : familyOf(cidr);
  });
}

function isDualStack(cidrs: readonly string[]): boolean {
  const families = familiesOf(cidrs);
  return families.includes("IPv4") && families.includes("IPv6") && !families.includes(undefined);
}

/**
 * Looks for node ports that are more widely open than probably intended.
 *
 * @param config after the word `primary` has been replaced by the node's addresses.
 * @returns the text to log as the error, or `undefined`.
 */
export function softCheck(config: DraftConfig, node: NodeFacts): string | undefined {
  const { nodePortAddresses } = config;
  const { primaryFamily } = node;
  const secondary = otherFamily(primaryFamily);
  if (nodePortAddresses.length === 0) {
    return "nodePortAddresses is unset; NodePort connections will be accepted on all local IPs. Consider using `--nodeport-addresses primary`";
  }
  const ofPrimary = familiesOf(nodePortAddresses).filter((family) => family === primaryFamily).length;
  const looksDualStack = [
    config.detectLocal.clusterCIDRs,
    nodePortAddresses,
    config.ipvs.excludeCIDRs,
    node.podCIDRs,
  ].some(isDualStack);
  if (looksDualStack && ofPrimary === nodePortAddresses.length) {
    return `cluster appears to be dual-stack but nodePortAddresses contains only ${primaryFamily} addresses; NodePort connections will be accepted on all local ${secondary} IPs`;
  }
  if (ofPrimary === 0) {
    return `cluster appears to be ${primaryFamily}-primary but nodePortAddresses contains only ${secondary} addresses; NodePort connections will be accepted on all local ${primaryFamily} IPs`;
  }
  return undefined;
}

/**
 * Looks for settings with addresses only of a family that is not the proxy's primary one, or that it does not serve.
 *
 * @param isDualStackProxy whether the proxy runs both families.
 */
export function familyCheck(
  config: DraftConfig,
  node: NodeFacts,
  isDualStackProxy: boolean,
): FamilyProblem | undefined {
  const bad = otherFamily(node.primaryFamily);
  const cluster = `cluster is ${node.primaryFamily}-${isDualStackProxy ? "primary" : "only"}`;
  const errors: string[] = [];
  let fatal = false;
  if (allOf(config.detectLocal.clusterCIDRs, bad)) {
    errors.push(`${cluster} but clusterCIDRs contains only ${bad} addresses`);
    fatal ||= config.detectLocalMode === "ClusterCIDR" && !isDualStackProxy;
  }
  if (allOf(node.podCIDRs, bad)) {
    errors.push(`${cluster} but node.spec.podCIDRs contains only ${bad} addresses`);
    fatal ||= config.detectLocalMode === "NodeCIDR";
  }
  if (isAddressOf(config.winkernel.sourceVip, bad)) {
    errors.push(`${cluster} but winkernel.sourceVip is ${bad}`);
  }
  if (!isDualStackProxy) {
    if (allOf(config.ipvs.excludeCIDRs, bad)) {
      errors.push(`${cluster} but ipvs.excludeCIDRs contains only ${bad} addresses`);
    }
    if (bindsOnly(config.healthzBindAddress, bad)) errors.push(`${cluster} but healthzBindAddress is ${bad}`);
    if (bindsOnly(config.metricsBindAddress, bad)) errors.push(`${cluster} but metricsBindAddress is ${bad}`);
  }
  return errors.length === 0 ? undefined : { message: joinErrors(errors), fatal };
}

/** The error that ends the process after a fatal {@link familyCheck}. */
export function fatalFamilyText(problem: FamilyProblem): string {
  return `kube-proxy configuration is incorrect: ${problem.message}`;
}

function allOf(cidrs: readonly string[], family: IpFamily): boolean {
  return cidrs.length > 0 && familiesOf(cidrs).every((found) => found === family);
}

function isAddressOf(text: string, family: IpFamily): boolean {
  const address = parseIpAddress(text);
  return address !== undefined && familyOf(address) === family;
}

/** Whether a server listens on one address of the family; the unspecified address serves both families. */
function bindsOnly(hostPort: string, family: IpFamily): boolean {
  const address = parseIpAddress(splitHostPort(hostPort)?.host ?? "");
  return address !== undefined && !isUnspecified(address) && familyOf(address) === family;
}
