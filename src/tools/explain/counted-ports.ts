/** Parses printed service ports into the form in which traffic is counted. */
import { type CountedPort, unknownCount } from "../../contract/traffic.ts";
import { servicePortName } from "../../model/service-port-name.ts";
import { type IpAddress, parseIpAddress, toPort } from "../../net/ip.ts";
import { PROTOCOLS } from "../../net/protocol.ts";

/** A service port as text: a line of a daemon's service table, or of an explanation. */
interface StatedPort {
  /** `namespace/name:port` */
  readonly servicePort: string;
  readonly protocol: string;
  readonly family: string;
  /** `10.96.0.10:80`, `[fd00::1]:80`, `*:30080` for a node port. */
  readonly frontends: readonly { readonly at: string }[];
  readonly endpoints: readonly { readonly address: string }[];
}

/**
 * @returns one entry for each frontend and endpoint, in their order; undefined for a service port that cannot be parsed, for example
 * from another version of the program.
 */
export function countedPort({ servicePort, protocol, family, ...stated }: StatedPort): CountedPort | undefined {
  const [, namespace = "", name = "", port = ""] = /^([^/:]+)\/([^/:]+)(?::([^/:]+))?$/.exec(servicePort) ?? [];
  const known = PROTOCOLS.find((one) => one === protocol);
  if (name === "" || known === undefined || (family !== "IPv4" && family !== "IPv6")) return undefined;
  const frontends = stated.frontends.flatMap(({ at }) => socketOf(at) ?? []);
  const endpoints = stated.endpoints.flatMap(({ address: text }) => {
    const { address: ip, port } = socketOf(text) ?? {};
    return ip === undefined || port === undefined ? [] : [{ ip, port, text, count: unknownCount() }];
  });
  const isWhole = frontends.length === stated.frontends.length && endpoints.length === stated.endpoints.length;
  if (!isWhole) return undefined;
  return {
    name: servicePortName(namespace, name, port, known),
    family,
    frontends: frontends.map((one) => ({ ...one, count: unknownCount() })),
    endpoints,
  };
}

function socketOf(text: string): { readonly address: IpAddress | undefined; readonly port: number } | undefined {
  const [, bracketed, bare = "", number] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text) ?? [];
  const port = toPort(Number(number));
  if (number === undefined || port === undefined) return undefined;
  if (bare === "*") return { address: undefined, port };
  const address = parseIpAddress(bracketed ?? bare);
  return address && { address, port };
}
