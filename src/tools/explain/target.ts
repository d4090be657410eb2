/** Parses what people type as the target of `explain`. */
import type { NodeRecord } from "../../model/objects.ts";
import { type IpAddress, parseIpAddress, toPort, urlHost } from "../../net/ip.ts";
import { PROTOCOLS, type Protocol } from "../../net/protocol.ts";

export type Target =
  /** `ns/name`, `ns/name:port`, `svc/name`, `ns/name:port/tcp`. */
  | ({ readonly kind: "service"; readonly service: string } & NamedPort)
  /** An address, optionally with a port (number or name) and a protocol. */
  | {
      readonly kind: "address";
      readonly address: IpAddress;
      readonly port: number | string | undefined;
      readonly protocol: Protocol | undefined;
    }
  /** A number alone. */
  | { readonly kind: "node-port"; readonly port: number; readonly protocol: Protocol | undefined }
  /** A chain, a set, a map, or the name of a Service without its namespace, as `name:port` too. */
  | ({ readonly kind: "name"; readonly name: string } & Partial<NamedPort>);

/** What may follow a Service's name. */
export interface NamedPort {
  /** Its number or name. */
  readonly port: string | undefined;
  readonly protocol: Protocol | undefined;
}

/** Also `*:30080`, as `kube-proxy services` prints it. */
const NUMBER = /^\*?:?(\d{1,5})(?:\/(tcp|udp|sctp))?$/i;
const ADDRESS = /^(?:\[([^\]]+)\]|([^/[\]]*?))(?::(\d{1,5}))?(?:\/(tcp|udp|sctp))?$/i;
const WITH_PORT_NAME = /^(?:\[([^\]]+)\]|([^/[\]:]+)):([a-z0-9-]*[a-z][a-z0-9-]*)(?:\/(tcp|udp|sctp))?$/i;
const SERVICE = /^(?:(?:svc|service|services)\/)?([^/:]+)(?:\/([^/:]+))?(?::([^/:]+))?(?:\/(tcp|udp|sctp))?$/i;
/** Neither a host name, which has dots, nor a name in the kernel, which has no colon. */
const BARE_WITH_PORT = /^([a-z0-9-]+):([a-z0-9-]+)(?:\/(tcp|udp|sctp))?$/i;
const IS_SERVICE_WORD = /^(?:svc|service|services)\//i;

/** `web.shop.svc`, `web.shop.svc.cluster.local`, in any cluster domain. */
const DNS_NAME = /^([a-z0-9-]+)\.([a-z0-9-]+)\.svc(?:\.[a-z0-9.-]*)?(?=:|\/|$)/i;

/** The ports that URLs leave out. */
const URL_PORTS: Readonly<Record<string, number>> = {
  ...{ "http:": 80, "https:": 443, "ws:": 80, "wss:": 443, "grpc:": 80, "redis:": 6379, "rediss:": 6379 },
  ...{ "postgres:": 5432, "postgresql:": 5432, "mysql:": 3306, "mongodb:": 27_017, "amqp:": 5672, "nats:": 4222 },
};

/**
 * `10.96.1.5:80` for `http://10.96.1.5/cart`, and `10.96.0.10:53/udp` for `udp://10.96.0.10:53`, copied from a browser, a log, a setting
 * or a pod's environment; other text unchanged.
 */
export function withoutUrl(text: string): string {
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(text) || !URL.canParse(text)) return text;
  const { protocol, hostname, port } = new URL(text);
  const number = port || URL_PORTS[protocol];
  const [, transport] = /^(udp|sctp):/.exec(protocol) ?? [];
  return `${hostname}${number === undefined ? "" : `:${number}`}${transport === undefined ? "" : `/${transport}`}`;
}

/** The text with a Service's DNS name, also in a URL, replaced by `namespace/name`. */
export function withoutDomain(text: string): string {
  return withoutUrl(text).replace(DNS_NAME, (_all, name: string, namespace: string) =>
    `${namespace}/${name}`.toLowerCase(),
  );
}

/** What names in a text can stand for. */
export interface KnownNames {
  readonly services: readonly { readonly namespace: string; readonly name: string }[];
  readonly serviceNotes?: readonly { readonly namespace: string; readonly name: string }[] | undefined;
  readonly nodes: readonly Pick<NodeRecord, "name" | "addresses">[];
  /** Of pods, as `namespace/name`. */
  readonly pods: Iterable<string>;
}

/** `redis.db`, `web-0.web.db`: a name in a namespace; what follows is a port or a protocol. */
const IN_NAMESPACE = /^(?<name>[a-z0-9-]+)\.(?:[a-z0-9-]+\.)?(?<namespace>[a-z0-9-]+)(?<rest>(?:[:/].*)?)$/i;
/** `web-0.web.shop.svc.cluster.local`, which a headless Service gives its pods. */
const POD_DNS = /^([a-z0-9-]+)\.[a-z0-9-]+\.([a-z0-9-]+)\.svc(?:\.[a-z0-9.-]*)?(?=:|\/|$)/i;
/** `10-180-0-11.shop.pod.cluster.local` */
const ADDRESS_DNS = /^(\d+-\d+-\d+-\d+)\.[a-z0-9-]+\.pod(?:\.[a-z0-9.-]*)?(?=:|\/|$)/i;
const HOST_AND_PORT = /^(?<host>[a-z0-9][a-z0-9.-]*):(?<rest>\d{1,5}(?:\/[a-z]+)?)$/i;

/**
 * The text as commands take it: names as pods, people and `kubectl get` know them become `namespace/name`, or the address of a Node.
 * The one place for this: all commands come through here.
 */
export function withKnownNames(typed: string, known: KnownNames): string {
  // The name of a Service has no dots: `svc/web.shop` can only be its name in DNS.
  const text = withoutDomain(typed.trim().replace(/^(?:svc|services?)\/(?=[a-z0-9-]+\.)/i, ""))
    .replace(POD_DNS, (_all, pod: string, namespace: string) => `${namespace}/${pod}`.toLowerCase())
    .replace(ADDRESS_DNS, (_all, address: string) => address.replaceAll("-", "."))
    .replace(/^localhost(?=:|\/|$)/i, "127.0.0.1");
  const { name, namespace, rest = "" } = IN_NAMESPACE.exec(text)?.groups ?? {};
  const key = `${namespace}/${name}`.toLowerCase();
  const services = [...known.services, ...(known.serviceNotes ?? [])];
  const isService = services.some((one) => `${one.namespace}/${one.name}` === key);
  const pods = name === undefined && !HOST_AND_PORT.test(text) ? [] : [...known.pods];
  if (name !== undefined && (isService || pods.includes(key))) return `${key}${rest}`;
  const { host = "", rest: port } = HOST_AND_PORT.exec(text)?.groups ?? {};
  if (port === undefined || services.some((one) => one.name === host)) return text;
  const node = known.nodes.find((one) => namesOf(one).has(host.toLowerCase()));
  const address = node?.addresses.flatMap((one) => parseIpAddress(one.address) ?? [])[0];
  return address === undefined ? text : `${urlHost(address)}:${port}`;
}

/** Its name, whole and without the domain, and its host names. */
function namesOf({ name, addresses }: KnownNames["nodes"][number]): ReadonlySet<string> {
  const hosts = addresses.map(({ address }) => address).filter((text) => parseIpAddress(text) === undefined);
  return new Set([name, ...hosts].flatMap((one) => [one, one.replace(/\..*/, "")]).map((one) => one.toLowerCase()));
}

/** `svc web`, two words as kubectl takes them, as one: `svc/web`. */
export function joinedKind(words: readonly string[]): readonly string[] {
  const [kind = "", name, ...more] = words;
  return name !== undefined && KIND_WORD.test(kind) && !name.includes("/") ? [`${kind}/${name}`, ...more] : words;
}

const KIND_WORD = /^(?:svc|services?|po|pods?|no|nodes?|ns|namespaces?)$/i;

/** A typed Service without its `svc/`, and with its DNS name replaced by `namespace/name`. */
export function serviceTyped(text: string): string {
  const plain = withoutDomain(text).replace(IS_SERVICE_WORD, "");
  return plain.replace(/^([a-z][a-z0-9-]*)\.([a-z0-9-]+)(?=:|$)/i, (_all, name: string, namespace: string) =>
    `${namespace}/${name}`.toLowerCase(),
  );
}

/**
 * Parses a target.
 *
 * @param typed may have a Service's DNS name, also in a URL.
 * @param namespace of a Service typed without one.
 * @param fallback the namespace after `svc/` if `namespace` is undefined.
 * @returns undefined if the text is no target.
 */
export function parseTarget(typed: string, namespace: string | undefined, fallback = "default"): Target | undefined {
  const text = withoutDomain(typed);
  const [, number, numberProtocol] = NUMBER.exec(text) ?? [];
  if (number !== undefined) {
    const port = toPort(Number(number));
    return port && { kind: "node-port", port, protocol: protocolOf(numberProtocol) };
  }
  const address = parseAddress(text);
  if (address !== undefined) return address;
  if (IS_SERVICE_WORD.test(text)) {
    const [, name = "", nested, port, protocol] = SERVICE.exec(text) ?? [];
    if (name === "") return undefined;
    const service = nested === undefined ? `${namespace ?? fallback}/${name}` : `${name}/${nested}`;
    return { kind: "service", service, port, protocol: protocolOf(protocol) };
  }
  const [, first, second, port, behind] = SERVICE.exec(text) ?? [];
  const protocol = protocolOf(behind);
  if (first !== undefined && second !== undefined)
    return { kind: "service", service: `${first}/${second}`, port, protocol };
  if (namespace !== undefined && first !== undefined && !text.startsWith("KUBE-")) {
    return { kind: "service", service: `${namespace}/${first}`, port, protocol };
  }
  const [, bare] = BARE_WITH_PORT.exec(text) ?? [];
  if (bare !== undefined) return { kind: "name", name: bare, port, protocol };
  return text === "" ? undefined : { kind: "name", name: text };
}

function parseAddress(text: string): Target | undefined {
  const whole = parseIpAddress(text);
  if (whole !== undefined) return { kind: "address", address: whole, port: undefined, protocol: undefined };
  const [, bracketed, bare, portText, protocol] = WITH_PORT_NAME.exec(text) ?? ADDRESS.exec(text) ?? [];
  const address = parseIpAddress(bracketed ?? bare ?? "");
  if (address === undefined) return undefined;
  const port = portText === undefined || !/^\d+$/.test(portText) ? portText?.toLowerCase() : toPort(Number(portText));
  if (portText !== undefined && port === undefined) return undefined;
  return { kind: "address", address, port, protocol: protocolOf(protocol) };
}

function protocolOf(text: string | undefined): Protocol | undefined {
  return PROTOCOLS.find((protocol) => protocol === text?.toUpperCase());
}
