/** Parses what people type as the target of `explain`. */
import { type IpAddress, parseIpAddress, toPort } from "../net/ip.ts";
import { PROTOCOLS, type Protocol } from "../net/protocol.ts";

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

/** `10.96.1.5:80` for `http://10.96.1.5/cart`, copied from a browser or a log; other text unchanged. */
export function withoutUrl(text: string): string {
  if (!/^https?:\/\//i.test(text) || !URL.canParse(text)) return text;
  const { protocol, hostname, port } = new URL(text);
  return `${hostname}:${port || (protocol === "http:" ? 80 : 443)}`;
}

/** The text with a Service's DNS name, also in a URL, replaced by `namespace/name`. */
export function withoutDomain(text: string): string {
  return withoutUrl(text).replace(DNS_NAME, (_all, name: string, namespace: string) =>
    `${namespace}/${name}`.toLowerCase(),
  );
}

/** A typed Service without its `svc/`, and with its DNS name replaced by `namespace/name`. */
export function serviceTyped(text: string): string {
  return withoutDomain(text).replace(IS_SERVICE_WORD, "");
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
