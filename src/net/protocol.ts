/**
 * The layer-4 protocols of service ports in three forms: as Kubernetes spells them, as the kernel's tools spell them, and as the
 * number in an IP header (IANA's protocol numbers, `IPPROTO_*`).
 */

/** As Kubernetes spells it: `spec.ports[].protocol`. */
export type Protocol = "TCP" | "UDP" | "SCTP";

/** As `nft`, `iptables` and `ipset` spell it. */
export type ProtocolName = Lowercase<Protocol>;

export const PROTOCOLS: readonly Protocol[] = ["TCP", "UDP", "SCTP"];

const NAMES = { TCP: "tcp", UDP: "udp", SCTP: "sctp" } as const satisfies { [P in Protocol]: Lowercase<P> };

export const PROTOCOL_NAMES: readonly ProtocolName[] = PROTOCOLS.map(protocolName);

/** Keyed by either spelling. */
export const PROTOCOL_NUMBERS: Readonly<Record<Protocol | ProtocolName, number>> = {
  ...{ TCP: 6, UDP: 17, SCTP: 132 },
  ...{ tcp: 6, udp: 17, sctp: 132 },
};

const BY_NUMBER: ReadonlyMap<number, Protocol> = new Map(
  PROTOCOLS.map((protocol) => [PROTOCOL_NUMBERS[protocol], protocol]),
);

/** The tools' spelling of a Kubernetes protocol. */
export function protocolName(protocol: Protocol): ProtocolName {
  return NAMES[protocol];
}

/** The protocol with this number; `undefined` when a service port cannot have it. */
export function protocolOfNumber(number: number | undefined): Protocol | undefined {
  return number === undefined ? undefined : BY_NUMBER.get(number);
}

/** As {@link protocolOfNumber}, as the tools spell it. */
export function protocolNameOfNumber(number: number | undefined): ProtocolName | undefined {
  const protocol = protocolOfNumber(number);
  return protocol && NAMES[protocol];
}

/** Whether a text is the tools' spelling of a protocol. */
export function isProtocolName(text: string): text is ProtocolName {
  return text === NAMES.TCP || text === NAMES.UDP || text === NAMES.SCTP;
}
