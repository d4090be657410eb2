/** Maps and programs for connected UDP sockets of a namespace, and what disconnects those whose endpoint went. */
import type { TestContext } from "node:test";
import { systemClock } from "../../../async/clock.ts";
import { kernelBpf } from "../../../kernel/bpf/kernel-bpf.ts";
import { testCgroup } from "../../../kernel/bpf/testing/test-cgroup.ts";
import { udpDisconnector } from "../../../kernel/sock-diag/disconnect-udp.ts";
import { silentLogger } from "../../../logging/logger.ts";
import type { IpFamily } from "../../../net/ip.ts";
import { startDialler } from "../socket-balancer/testing/dialler.ts";
import { leadNamespaces } from "../socket-balancer/testing/dialling.ts";
import { SocketMaps } from "../socket-maps.ts";
import { SocketPrograms } from "../socket-programs.ts";
import { StaleConnections } from "../stale-connections.ts";

/** Nothing is attached yet; all ends with the test. @param most the room of the maps */
export async function connectedScene(
  t: TestContext,
  family: IpFamily,
  most: { readonly services: number; readonly endpoints: number },
) {
  const bpf = kernelBpf();
  const cgroup = testCgroup(t);
  const dialler = await startDialler(t, cgroup);
  const disconnector = udpDisconnector();
  const programs = new SocketPrograms(bpf, family, { hostCookie: 1n });
  const maps = new SocketMaps(
    { bpf, family, onMoved: (open) => programs.load(open), nowMs: () => performance.now() },
    most,
  );
  maps.renew({ until: 2n ** 63n });
  leadNamespaces(maps.memory, await dialler.netnsCookie());
  let disconnected = 0;
  const stale = new StaleConnections({
    connections: maps.connections,
    disconnector,
    onDisconnected: (count) => {
      disconnected += count;
    },
    onUnreachable: () => {},
    log: silentLogger,
    clock: systemClock,
  });
  t.after(async () => {
    programs.close();
    await stale.disconnectAll();
    maps.close();
  });
  const attach = (): void => {
    programs.load(maps.open);
    programs.attach(cgroup);
  };
  return { dialler, disconnector, programs, maps, stale, attach, disconnected: () => disconnected };
}
