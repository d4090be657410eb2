/** Reads the packet for `kube-proxy trace` from its flags. */

import { CLIENT_KINDS, type ClientKind, type ClientPlace, sendingTo } from "../../contract/inspect/client-place.ts";
import type { FirstHook, TraceFilter } from "../../kernel/nftables/tracing/trace-table.ts";
import { familyOf, type IpAddress, type IpFamily, joinHostPort, parseIpAddress } from "../../net/ip.ts";
import { CONNECTION_STATES, type ConnectionState, type PacketQuestion } from "../../trace/packet.ts";
import { UsageError } from "./output.ts";
import { didYouMean } from "./suggestion.ts";

export interface PacketFlags {
  /** Undefined: any client, for which only real packets can be asked. */
  readonly from: string | undefined;
  readonly to: string;
  readonly in?: string | undefined;
  readonly mark?: string | undefined;
  readonly state: string;
}

export interface ParsedTarget {
  readonly family: IpFamily;
  readonly address: IpAddress;
  readonly port: number | undefined;
  readonly protocol: string;
}

/** Protocol numbers of the IP header. */
const PROTOCOLS: Readonly<Record<string, number>> = { ...{ tcp: 6, udp: 17, sctp: 132 }, icmp: 1, icmpv6: 58 };
const PROTOCOL_WORDS = Object.keys(PROTOCOLS);
const TARGET = /^(?<end>.+?)(?:\/(?<protocol>[a-z0-9]+))?$/i;
const END = /^(?:\[(?<bracketed>[^\]]*)\]|(?<bare>[^:]*))(?::(?<port>\d+))?$/;

/** @throws UsageError */
export function parseTarget(text: string): ParsedTarget {
  const { end = "", protocol: word = "tcp" } = TARGET.exec(text)?.groups ?? {};
  const protocol = word.toLowerCase();
  if (!PROTOCOL_WORDS.includes(protocol)) {
    const message = `--to: the protocol must be ${PROTOCOL_WORDS.join(", ")}, got "${word}"`;
    throw new UsageError(message, didYouMean(protocol, PROTOCOL_WORDS));
  }
  const { address, port } = parseEnd("--to", end);
  const hasPort = !protocol.startsWith("icmp");
  if (hasPort && port === undefined) {
    throw new UsageError(`--to needs a port, as in ${joinHostPort(address, 80)}/${protocol}`);
  }
  if (!hasPort && port !== undefined) {
    throw new UsageError(`--to: ${protocol} has no ports, got "${text}"`, `Leave the port out: ${address}/${protocol}`);
  }
  return { family: familyOf(address), address, port, protocol };
}

function parseEnd(flag: string, text: string): { readonly address: IpAddress; readonly port: number | undefined } {
  const whole = parseIpAddress(text);
  if (whole !== undefined) return { address: whole, port: undefined };
  const { bracketed, bare, port: digits } = END.exec(text)?.groups ?? {};
  const address = parseIpAddress(bracketed ?? bare ?? "");
  if (address === undefined) {
    throw new UsageError(`${flag} must be ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT, got "${text}"`);
  }
  return { address, port: digits === undefined ? undefined : portOf(flag, digits) };
}

function portOf(flag: string, digits: string): number {
  const port = Number(digits);
  if (port >= 1 && port <= 65_535) return port;
  throw new UsageError(`${flag}: a port is a number from 1 to 65535, got "${digits}"`);
}

/** A pod of this node. */
export interface PodPlace {
  /** Undefined: not known. */
  readonly inInterface: string | undefined;
}

/** What is known about clients on the node in question. */
interface ClientKnowledge {
  /** Where a kind of client is; throws UsageError if that is not known. */
  readonly placeOf: (position: ClientKind) => ClientPlace;
  readonly isLocal: (address: IpAddress) => boolean;
  /** The pod of this node with this address, and its packets' interface; undefined if none is known. */
  readonly podAt: (address: IpAddress) => PodPlace | undefined;
}

/** @throws UsageError */
export function packetQuestion(
  flags: PacketFlags,
  target: ParsedTarget,
  { placeOf, isLocal, podAt }: ClientKnowledge,
): PacketQuestion {
  const { address, port, inInterface } = clientOf(
    flags.from ?? "",
    (position) => sendingTo(target.address, placeOf(position), isLocal),
    isLocal,
  );
  if (familyOf(address) !== target.family) {
    throw new UsageError(`--from ${flags.from} and --to ${flags.to} are of different families`);
  }
  const state = checkedState(flags.state);
  const pod = podAt(address);
  const isHere = inInterface === "" || pod !== undefined;
  return {
    family: target.family,
    protocol: target.protocol,
    source: address,
    sourcePort: port,
    destination: target.address,
    destinationPort: target.port,
    inInterface: flags.in ?? inInterface ?? pod?.inInterface,
    // A packet that enters through a given interface has left its socket.
    origin: !isHere ? "elsewhere" : flags.in === undefined ? "socket" : "this-node",
    mark: markOf(flags.mark),
    state,
  };
}

/** Which real packets to trace. `pod`, `node` and `outside` only say where a packet starts, not its address. @throws UsageError */
export function trafficOf(
  flags: PacketFlags,
  target: ParsedTarget,
  isLocal: (address: IpAddress) => boolean,
): TraceFilter {
  const { from } = flags;
  const any = { address: undefined, port: undefined, inInterface: undefined };
  let isNamed = false;
  const noAddress = (position: ClientKind): ClientPlace => {
    isNamed = true;
    return { address: target.address, inInterface: position === "node" ? "" : undefined };
  };
  const { address, port, inInterface } = from === undefined ? any : clientOf(from, noAddress, isLocal);
  const source = isNamed ? undefined : address;
  if (source !== undefined && familyOf(source) !== target.family) {
    throw new UsageError(`--from ${from} and --to ${target.address} are of different families`);
  }
  const state = checkedState(flags.state);
  const isOfNode = inInterface === "";
  const hooks: readonly FirstHook[] =
    from === undefined && flags.in === undefined ? ["prerouting", "output"] : isOfNode ? ["output"] : ["prerouting"];
  return {
    family: target.family === "IPv4" ? "ip" : "ip6",
    hooks: new Set(hooks),
    protocol: PROTOCOLS[target.protocol] ?? 0,
    source,
    sourcePort: port,
    destination: target.address,
    destinationPort: target.port,
    opening: target.protocol === "tcp" ? OPENING[state] : undefined,
    inInterface: flags.in,
    mark: flags.mark === undefined ? undefined : markOf(flags.mark),
  };
}

/** Whether a packet of the state opens a connection of TCP; undefined for any of the state's packets. */
const OPENING: Partial<Record<ConnectionState, boolean>> = { new: true, established: false };

function checkedState(text: string): ConnectionState {
  const state = CONNECTION_STATES.find((known) => known === text.toLowerCase());
  if (state === undefined) throw new UsageError(`--state must be ${CONNECTION_STATES.join(", ")}, got "${text}"`);
  return state;
}

function clientOf(
  from: string,
  placeOf: (position: ClientKind) => ClientPlace,
  isLocal: (address: IpAddress) => boolean,
): ClientPlace & { readonly port: number | undefined } {
  const [word = "", digits] = from.split(":", 2);
  const position = CLIENT_KINDS.find((name) => name === word.toLowerCase());
  if (position !== undefined) {
    return { ...placeOf(position), port: digits === undefined ? undefined : portOf("--from", digits) };
  }
  if (/^[a-z][a-z0-9.-]*$/i.test(word) && parseIpAddress(from) === undefined) {
    const message = `--from must be an address, a known pod, or ${CLIENT_KINDS.join(", ")}; got "${from}"`;
    throw new UsageError(message, didYouMean(word, CLIENT_KINDS));
  }
  const { address, port } = parseEnd("--from", from);
  return { address, port, inInterface: isLocal(address) ? "" : undefined };
}

function markOf(text: string | undefined): number {
  if (text === undefined) return 0;
  const mark = /^(?:0x[0-9a-f]+|\d+)$/i.test(text) ? Number(text) : Number.NaN;
  if (mark <= 0xffff_ffff) return mark;
  throw new UsageError(`--mark must be a number up to 0xffffffff, got "${text}"`);
}
