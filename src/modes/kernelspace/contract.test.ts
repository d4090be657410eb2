import { runDataplaneContract } from "../../../testkit/dataplane/dataplane-contract.ts";
import { SyncDriver } from "../../../testkit/dataplane/sync-driver.ts";
import { HR } from "../../../testkit/fakes/hcn/memory-hcn.ts";
import { hostState, KernelspaceRig, type RigOptions } from "./testing/kernelspace-rig.ts";

const NO_MODEL = new SyncDriver({ services: new Map(), endpoints: new Map() });

const SUBJECTS: readonly (readonly [name: string, options: RigOptions])[] = [
  ["on an L2Bridge", {}],
  ["on an overlay", { type: "Overlay", config: { enableDsr: true } }],
  ["without changes in place", { canModify: false, hcn: { version: { major: 9, minor: 5 } } }],
];

for (const [name, options] of SUBJECTS) {
  runDataplaneContract({
    name: `kernelspace ${name}`,
    async open() {
      const { backend, host } = new KernelspaceRig(NO_MODEL, options);
      return {
        backend,
        state: () => hostState(host),
        takeWrites: () => host.takeWrites().length,
        refuse: ({ clusterIP }) =>
          host.refuse(({ verb, kind, about }) =>
            verb === "Create" && kind === "LoadBalancer" && about.includes(`"${clusterIP}"`)
              ? HR.outOfMemory
              : undefined,
          ),
      };
    },
  });
}
