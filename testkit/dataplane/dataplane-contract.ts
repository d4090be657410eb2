/**
 * What every proxy mode's backend must do. A mode passes this with its kernel in memory:
 *
 *     runDataplaneContract({ name: "nftables", open: async () => ({ backend, state, takeWrites, refuse }) });
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Backend } from "../../src/contract/backend.ts";
import type { ServicePort } from "../../src/model/service-port.ts";
import { ContractCluster } from "./contract-cluster.ts";

/** A backend on its own node. */
export interface ContractRig {
  readonly backend: Backend;
  /** Everything that the mode has on the node; equal for equal rules, independent of the order of changes. */
  state(): unknown;
  /** Number of change requests since the last call. */
  takeWrites(): number;
  /** From now on the node rejects something of this service port, which it does not have yet. @returns a function that ends that. */
  refuse(port: ServicePort): () => void;
}

export interface DataplaneContract {
  readonly name: string;
  /** A rig on an empty node. */
  open(): Promise<ContractRig>;
  /** Why the tests cannot run here. */
  readonly skip?: string | false;
  /** Whether its syncs report what they wrote, and how long they waited for the kernel. @default true */
  readonly saysWritten?: boolean;
  /** Whether time passes in the rig. @default true */
  readonly hasClock?: boolean;
}

const NODE_PORT = { nodePort: 30_080, isExternallyAccessible: true } as const;

function someServices(): { readonly cluster: ContractCluster; readonly ports: readonly ServicePort[] } {
  const cluster = new ContractCluster();
  return { cluster, ports: [cluster.set(1, 2), cluster.set(2, 1, NODE_PORT), cluster.set(3, 0), cluster.set(4, 3)] };
}

/** Registers the tests. */
export function runDataplaneContract(contract: DataplaneContract): void {
  const { name, open, skip = false, saysWritten = true, hasClock = true } = contract;
  /** What one full sync leaves on an empty node. */
  async function fromNothing(cluster: ContractCluster): Promise<unknown> {
    const { backend, state } = await open();
    await cluster.syncOther(backend);
    return await state();
  }

  describe(`${name} as a dataplane`, { skip }, () => {
    test("a sync without changes writes nothing", async () => {
      const { cluster } = someServices();
      const { backend, takeWrites, state } = await open();
      await cluster.sync(backend, { full: true });
      const before = await state();
      takeWrites();
      assert.deepEqual((await cluster.sync(backend)).failures, []);
      assert.equal(takeWrites(), 0);
      assert.deepEqual(await state(), before);
    });

    test("partial syncs end where a full one does", async () => {
      const { cluster, ports } = someServices();
      const { backend, state } = await open();
      await cluster.sync(backend, { full: true });
      cluster.set(1, 1);
      cluster.set(2, 2, { ...NODE_PORT, sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 10 });
      await cluster.sync(backend);
      cluster.set(3, 1);
      cluster.set(5, 1);
      for (const port of ports.slice(3)) cluster.delete(port);
      await cluster.sync(backend);
      const wanted = await fromNothing(cluster);
      assert.deepEqual(await state(), wanted);
      await cluster.sync(backend, { full: true });
      assert.deepEqual(await state(), wanted);
    });

    test("a sync says what it wrote, and how long it waited for the kernel", { skip: !saysWritten }, async () => {
      const { cluster } = someServices();
      const { backend } = await open();
      const sum = (counts: Readonly<Record<string, number>> | undefined) =>
        Object.values(counts ?? {}).reduce((total, count) => total + count, 0);
      const full = await cluster.sync(backend, { full: true });
      cluster.set(6, 2, { nodePort: 30_081, isExternallyAccessible: true });
      const began = performance.now();
      const { written } = await cluster.sync(backend);
      const tookMs = performance.now() - began;
      assert.ok(sum(full.written?.counts) > 0 && sum(written?.counts) > 0);
      const { kernelMs = Number.NaN } = written ?? {};
      assert.ok((hasClock ? kernelMs > 0 : kernelMs === 0) && kernelMs <= tookMs, `${kernelMs} of ${tookMs} ms`);
      const nothing = await cluster.sync(backend);
      assert.equal(sum(nothing.written?.counts), 0);
    });

    test("removed services leave nothing", async () => {
      const { cluster, ports } = someServices();
      const { backend, state } = await open();
      await cluster.sync(backend, { full: true });
      for (const port of ports) cluster.delete(port);
      await cluster.sync(backend);
      assert.deepEqual(await state(), await fromNothing(new ContractCluster()));
    });

    test("what an aborted sync leaves, the next one completes", async () => {
      const { cluster, ports } = someServices();
      const { backend, state } = await open();
      await cluster.sync(backend, { full: true });
      cluster.set(1, 3);
      cluster.set(6, 1);
      for (const port of ports.slice(2)) cluster.delete(port);
      const stop = new AbortController();
      const aborted = cluster.sync(backend, { full: true, signal: stop.signal });
      stop.abort();
      // The abort may have come too late to stop anything.
      await aborted.catch((error: unknown) => assert.equal(stop.signal.aborted, true, String(error)));
      await cluster.sync(backend, { full: true });
      assert.deepEqual(await state(), await fromNothing(cluster));
    });

    test("what the node refuses is named, the others are served, and it is tried again", async () => {
      const cluster = new ContractCluster();
      const { backend, state, refuse } = await open();
      await cluster.sync(backend, { full: true });
      cluster.set(1, 2);
      const bad = cluster.set(2, 1, NODE_PORT);
      const heal = refuse(bad);
      const { failures } = await cluster.sync(backend);
      assert.deepEqual([...new Set(failures.map(({ subject }) => subject))], [bad.name.text]);
      for (const { reason } of failures) assert.notEqual(reason, "");
      assert.notDeepEqual(await state(), await fromNothing(new ContractCluster()), "the other service is there");
      assert.notDeepEqual(await state(), await fromNothing(cluster), "the refused one is not whole");
      heal();
      assert.deepEqual((await cluster.sync(backend)).failures, []);
      assert.deepEqual(await state(), await fromNothing(cluster));
    });

    test("close may be called twice, and after no sync at all", async () => {
      const { cluster } = someServices();
      const used = await open();
      await cluster.sync(used.backend, { full: true });
      for (const { backend } of [used, await open()]) {
        await backend.close?.();
        await backend.close?.();
      }
    });
  });
}
