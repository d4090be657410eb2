/** Connections redirected at the socket: joins the programs' records with the kernel's information about the sockets. */
import type { BpfMap } from "../../kernel/bpf/bpf.ts";
import { takeNumber, takeWide } from "../../kernel/bpf/layout.ts";
import type { LedFlow } from "../../kernel/conntrack/conntrack.ts";
import { clientSockets, type KnownSocket } from "../../kernel/sock-diag/client-sockets.ts";
import { type ClientFlow, destroyTcpClients } from "../../kernel/sock-diag/destroy-tcp.ts";
import type { DiagSocket } from "../../kernel/sock-diag/sock-diag.ts";
import type { Flow } from "../../net/flow.ts";
import { type IpAddress, type IpFamily, ipFromBytes } from "../../net/ip.ts";
import { TCP_PEER, UDP_FLOW, UDP_FLOW_KEY } from "./socket-balancer/maps.ts";

/** The requested frontend and the endpoint that answers. */
interface Led {
  readonly frontend: IpAddress;
  readonly frontendPort: number;
  readonly endpoint: IpAddress;
  readonly endpointPort: number;
}

/** Reads one family's connections. The maps may be closed meanwhile. @throws BpfError, NetlinkError */
export async function readLedSockets(
  family: IpFamily,
  maps: () => { readonly tcpPeers: BpfMap; readonly flows: BpfMap } | undefined,
  visit: (flow: LedFlow) => void,
): Promise<void> {
  const peerOf = ({ cookie, remote, remotePort }: DiagSocket): Led | undefined => {
    const value = maps()?.tcpPeers.lookup(new Uint8Array(BigUint64Array.of(cookie).buffer));
    if (value === undefined) return undefined;
    // The socket may have connected to something else since.
    const led = readLed(value, TCP_PEER[family].fields);
    return led.endpoint === remote && led.endpointPort === remotePort ? led : undefined;
  };
  for await (const socket of clientSockets("TCP", family, peerOf)) visit(flowOf("TCP", socket, socket.known));
  const elements = maps()?.flows.entries() ?? [];
  if (elements.length === 0) return;
  const bySocket = Map.groupBy(elements, ([key]) => takeWide(key, UDP_FLOW_KEY.fields.cookie));
  for await (const socket of clientSockets("UDP", family, ({ cookie }) => bySocket.get(cookie))) {
    for (const [, value] of socket.known) visit(flowOf("UDP", socket, readLed(value, UDP_FLOW[family].fields)));
  }
}

type LedFields = (typeof TCP_PEER | typeof UDP_FLOW)[IpFamily]["fields"];

function readLed(value: Uint8Array, { address, port, dialled, dialledPort }: LedFields): Led {
  const at = (place: typeof address) => ipFromBytes(value.slice(place.at, place.at + place.bytes));
  return {
    ...{ frontend: at(dialled), frontendPort: takeNumber(value, dialledPort) },
    ...{ endpoint: at(address), endpointPort: takeNumber(value, port) },
  };
}

function flowOf(
  protocol: "TCP" | "UDP",
  { cookie, state, local, localPort, rttMs, retransmits, sent, received }: KnownSocket<unknown>,
  { frontend, frontendPort, endpoint, endpointPort }: Led,
): LedFlow {
  return {
    ...{ protocol, sourceIP: local, sourcePort: localPort, destinationIP: frontend, destinationPort: frontendPort },
    ...{
      replySourceIP: endpoint,
      replySourcePort: endpointPort,
      replyDestinationIP: local,
      replyDestinationPort: localPort,
    },
    socket: protocol === "TCP" ? String(cookie) : `${cookie} ${frontend} ${frontendPort}`,
    ...(protocol === "TCP" && { state, isAnswered: state !== "SYN_SENT" }),
    ...(rttMs !== undefined && { rttMs, retransmits, sent, received }),
  };
}

/** Closes client sockets. Redirected ones are connected to the endpoint, others to the requested address. */
export async function endLedSockets(flows: readonly (Flow & Partial<LedFlow>)[]): Promise<ReadonlySet<Flow>> {
  const asked = new Map<ClientFlow, Flow>();
  for (const flow of flows) {
    const { replySourceIP: destinationIP, replySourcePort: destinationPort } = flow;
    asked.set(flow.socket === undefined ? flow : { ...flow, destinationIP, destinationPort }, flow);
  }
  const ended = await destroyTcpClients([...asked.keys()]);
  return new Set([...ended].map((flow) => asked.get(flow) ?? flow));
}
