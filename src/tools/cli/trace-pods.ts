/** Resolves names of pods in `--from` and `--to` of `kube-proxy trace`, and of Services in `--to`, to addresses. */

import { CLIENT_KINDS } from "../../contract/inspect/client-place.ts";
import { addressOfPod, type KnownPod, knownPods, type PodSources } from "../../contract/inspect/known-pods.ts";
import { type NodeRecord, objectKeyText, type ServiceRecord } from "../../model/objects.ts";
import { familyOf, IP_FAMILIES, type IpFamily, joinHostPort, parseIpAddress, urlHost } from "../../net/ip.ts";
import { isKnownService, whyNotServed } from "../explain/find.ts";
import { addressesOf, behindHostName, type HostNames } from "../explain/part-of-cluster.ts";
import { withKnownNames, withoutDomain } from "../explain/target.ts";
import { UsageError } from "./output.ts";
import { didYouMean, namesakes, nearestWord, onlyNamed } from "./suggestion.ts";

/** `NAMESPACE/NAME`, and what follows it. */
interface PodMention {
  readonly pod: string;
  /** `:PORT`, `/PROTOCOL`, both or neither; the port of a Service may be its name. */
  readonly rest: string;
}

/** The ends of a packet as typed. */
export interface PacketEnds {
  /** Undefined: any client. */
  readonly from: string | undefined;
  readonly to: string;
}

/** The same ends as addresses, and what is known about them. */
export interface ResolvedEnds extends PacketEnds {
  /** The node of the pod in `--from`; undefined if no pod is named, or its node is not known. */
  readonly fromNode: string | undefined;
  /** Which pod has which address, in words. */
  readonly notes: readonly string[];
}

/** Where names are looked up. @default namespace no namespace takes precedence */
export type NamedObjects = PodSources &
  HostNames & {
    readonly services: readonly ServiceRecord[];
    readonly nodes: readonly NodeRecord[];
    readonly namespace?: string | undefined;
  };

const MENTION =
  /^(?:pods?\/|po\/)?(?<pod>[a-z0-9](?:[-a-z0-9]*[a-z0-9])?\/[a-z0-9][-.a-z0-9]*)(?<rest>(?::[a-z0-9-]+)?(?:\/[a-z0-9]+)?)$/i;

/** The pod's name in `--from` or `--to` as typed; undefined for anything else. */
function podMention(text: string): PodMention | undefined {
  // An address before a protocol has a dot or a colon before the slash, which no namespace has.
  const { pod, rest = "" } = MENTION.exec(withoutDomain(text))?.groups ?? {};
  return pod === undefined ? undefined : { pod: pod.toLowerCase(), rest };
}

/** A name without its namespace: `redis:6379`, `svc/redis/udp`, `pod/web-1`. */
const BARE =
  /^(?:(?<kind>svc|services?|pods?|po)\/)?(?<name>[a-z](?:[-a-z0-9]*[a-z0-9])?)(?<rest>(?::[a-z0-9-]+)?(?:\/(?:tcp|udp|sctp))?)$/i;
/** The last part of a host name has a letter, that of an address has none. */
const HOST = /^(?:[a-z0-9-]+\.)+[a-z][a-z0-9-]*(?::[a-z0-9-]+)?(?:\/[a-z]+)?$/i;

function bareName(text: string): { readonly name: string; readonly rest: string } | undefined {
  const { kind, name = "", rest = "" } = BARE.exec(text)?.groups ?? {};
  const isWord = kind === undefined && CLIENT_KINDS.some((position) => position === name.toLowerCase());
  return name === "" || isWord ? undefined : { name: name.toLowerCase(), rest };
}

/** Adds the namespace to names without one. */
export function inNamespace({ from, to }: PacketEnds, namespace: string | undefined): PacketEnds {
  const put = (text: string): string => {
    const bare = namespace === undefined ? undefined : bareName(text);
    return bare === undefined ? text : `${namespace}/${bare.name}${bare.rest}`;
  };
  return { from: from && put(from), to: put(to) };
}

/** Adds the only namespace that has such a name. @throws UsageError if there are several, or if a destination does not exist */
function withNamespace(flag: "--from" | "--to", text: string, pods: Iterable<string>, objects: NamedObjects): string {
  const bare = bareName(text);
  if (bare === undefined) return text;
  const { services, serviceNotes = [] } = flag === "--to" ? objects : { services: [] };
  const known = [services.map(objectKeyText), [...pods], serviceNotes.map(objectKeyText)];
  const [name] = known.flatMap((names) => onlyNamed(flag, bare.name, names, objects.namespace) ?? []);
  if (name !== undefined) return `${name}${bare.rest}`;
  if (flag === "--from") return text;
  const names = known.flat().map((one) => one.replace(/.*\//, ""));
  throw new UsageError(`--to: nothing is known by the name "${bare.name}"`, didYouMean(bare.name, names));
}

/** DNS resolves a host name, and no object says at which node port its packets arrive. @throws UsageError for a host name */
function refuseHostName(to: string, objects: HostNames): void {
  if (!HOST.test(withoutDomain(to))) return;
  const behind = behindHostName(objects, to.replace(/\/.*/, ""));
  if (behind === undefined) throw new UsageError(`--to: no Service has a load balancer named ${to}`);
  const { host, service } = behind;
  throw new UsageError(
    `--to: ${host} is the load balancer of ${service}: its packets come to a node port, or to a pod itself`,
    `kube-proxy explain ${service} has its node ports: give NODE-ADDRESS:PORT.`,
  );
}

/** An address with the name of a port: `10.96.0.10:http`, `[fd00::1]:dns/udp`. */
const NAMED_PORT = /^(?<address>[\d.]+|\[[^\]]+\]):(?<port>[a-z0-9-]*[a-z][a-z0-9-]*)(?<protocol>\/[a-z]+)?$/i;

/** Whether only the objects of a cluster can resolve `--to`. */
export function needsObjects(to: string): boolean {
  return [podMention(to), bareName(to)].some(Boolean) || NAMED_PORT.test(to) || HOST.test(to);
}

/** Replaces the name of a Service's port, after its address, by the number. @throws UsageError if it has none */
function withPortNumber(to: string, services: readonly ServiceRecord[]): string {
  const { address = "", port: name = "", protocol } = NAMED_PORT.exec(to)?.groups ?? {};
  if (name === "") return to;
  const wanted = parseIpAddress(address.replace(/^\[|\]$/g, ""));
  const own = services.find((service) => wanted !== undefined && addressesOf(service).includes(wanted));
  const port = own?.ports.find((one) => one.name === name.toLowerCase());
  if (port !== undefined) return `${address}:${port.port}${protocol ?? `/${port.protocol.toLowerCase()}`}`;
  const names = own?.ports.map((one) => one.name || String(one.port)).join(", ");
  throw new UsageError(
    own === undefined
      ? `--to: no Service has the address ${address}: give the number of the port`
      : `--to: Service ${own.namespace}/${own.name} has no port "${name}", but ${names}`,
  );
}

/** The names of pods in a packet's ends. */
export function mentionedPods({ from, to }: PacketEnds): readonly string[] {
  return [from, to].flatMap((text) => (text === undefined ? [] : (podMention(text)?.pod ?? [])));
}

/** Replaces names of pods by addresses. @throws UsageError for an unknown pod, or one without such an address */
export function resolvePods(ends: PacketEnds, objects: NamedObjects): ResolvedEnds {
  const known = knownPods(objects);
  const named = (text: string) => withKnownNames(text, { ...objects, pods: known.keys() });
  const target = named(ends.to);
  refuseHostName(target, objects);
  const from = ends.from && withNamespace("--from", named(ends.from), known.keys(), objects);
  const to = withPortNumber(withNamespace("--to", target, known.keys(), objects), objects.services);
  const [fromMention, toMention] = [from === undefined ? undefined : podMention(from), podMention(to)];
  const fromPod = fromMention && podNamed("--from", fromMention.pod, known, objects);
  const service = toMention && !known.has(toMention.pod) ? serviceEnd(toMention, objects) : undefined;
  const toPod = toMention && (service ?? podNamed("--to", toMention.pod, known, objects));
  const families = [fromPod, toPod].flatMap((pod) => (pod === undefined ? [] : [new Set(pod.addresses.map(familyOf))]));
  const typed = [fromMention === undefined ? from : undefined, toMention === undefined ? to : undefined];
  const wanted = typed.flatMap((text) => familyOfText(text) ?? []);
  // The family of the given address, or one that both pods have.
  const family = wanted[0] ?? IP_FAMILIES.find((one) => families.every((own) => own.has(one))) ?? "IPv4";
  const notes: string[] = [];
  const put = (flag: string, pod: KnownPod, rest: string): string => {
    const address = addressOfPod(pod, family);
    if (address === undefined) {
      throw new UsageError(`${flag}: pod ${pod.name} has no ${family} address, but ${pod.addresses.join(", ")}`);
    }
    notes.push(
      `${pod.name} is ${pod === service ? `${urlHost(address)}${rest}` : address}${pod.nodeName === "" ? "" : `, on ${pod.nodeName}`}`,
    );
    return `${urlHost(address)}${rest}`;
  };
  return {
    from: fromPod === undefined ? from : put("--from", fromPod, fromMention?.rest ?? ""),
    to: toPod === undefined ? to : put("--to", toPod, service?.rest ?? toMention?.rest ?? ""),
    fromNode: fromPod?.nodeName || undefined,
    notes,
  };
}

/** A Service instead of a pod: its cluster IPs, and the number of its port. @throws UsageError for a port that it does not have */
function serviceEnd(
  { pod: name, rest }: PodMention,
  { services }: NamedObjects,
): (KnownPod & { readonly rest: string }) | undefined {
  const service = services.find((one) => `${one.namespace}/${one.name}` === name);
  const addresses = service?.clusterIPs.flatMap((text) => parseIpAddress(text) ?? []) ?? [];
  if (service === undefined || addresses.length === 0) return undefined;
  const [, wanted, protocol] = /^(?::([^/]+))?(?:\/(.+))?$/.exec(rest) ?? [];
  const fitting = service.ports.filter(
    (one) =>
      (wanted === undefined || one.name === wanted || String(one.port) === wanted) &&
      (protocol === undefined || one.protocol === protocol.toUpperCase()),
  );
  const [port] = fitting;
  if (port !== undefined && (fitting.length === 1 || wanted !== undefined)) {
    return { name, nodeName: "", addresses, rest: `:${port.port}/${port.protocol.toLowerCase()}` };
  }
  const suffix = (one: string) => (protocol === undefined ? "" : `/${one.toLowerCase()}`);
  const names = service.ports.map((one) => `${one.name || one.port}${suffix(one.protocol)}`).join(", ");
  throw new UsageError(
    fitting.length > 1
      ? `--to: Service ${name} has several ports: --to ${name}:PORT, which is ${names}`
      : `--to: Service ${name} has no port "${[wanted, protocol].filter(Boolean).join("/")}", but ${names}`,
  );
}

function podNamed(flag: string, name: string, known: ReadonlyMap<string, KnownPod>, objects: NamedObjects): KnownPod {
  const { services } = objects;
  const pod = known.get(name);
  if (pod !== undefined) return pod;
  const service = services.find((one) => `${one.namespace}/${one.name}` === name);
  const clusterIP = parseIpAddress(service?.clusterIP ?? "");
  if (clusterIP !== undefined) {
    const place = joinHostPort(clusterIP, service?.ports[0]?.port ?? 80);
    throw new UsageError(`${flag}: "${name}" is a Service, not a pod`, `Its cluster IP: --to ${place}.`);
  }
  if (isKnownService(objects, name)) throw new UsageError(`${flag}: ${whyNotServed(objects, name)}`);
  const names = [...(flag === "--to" ? services.map(objectKeyText) : []), ...known.keys()];
  const nearest = namesakes(name, names).join(" or ") || nearestWord(name, names);
  throw new UsageError(
    `${flag}: there is no ${flag === "--to" ? "Service or pod" : "pod"} "${name}" among the objects`,
    nearest === undefined ? undefined : `Did you mean ${nearest}?`,
  );
}

/** The family of the address that a text begins with; undefined without one, as for `pod`, `node` and `outside`. */
function familyOfText(text: string | undefined): IpFamily | undefined {
  if (text === undefined) return undefined;
  if (/^\[?[0-9a-f]*:[0-9a-f:]*/i.test(text)) return "IPv6";
  return /^\d+\.\d+\./.test(text) ? "IPv4" : undefined;
}
