/** The kernelspace mode of Windows: HNS load balancers. Reference windows.md. */

import type { ModeDescriptor } from "../../contract/dataplane.ts";
import type { KernelspacePlanData } from "./cluster-plan.ts";
import { winkernelConfig } from "./config.ts";

declare module "../../contract/config/config.ts" {
  interface DeclaredModes {
    readonly kernelspace: DeclaredSection<"winkernel", typeof winkernelConfig>;
  }
}

export const kernelspace: ModeDescriptor<"kernelspace", typeof winkernelConfig, KernelspacePlanData> & {
  readonly sectionName: "winkernel";
} = {
  name: "kernelspace",
  sectionName: "winkernel",
  platforms: ["win32"],
  isUpstream: true,
  ignoresBalancing: true,
  config: winkernelConfig,
  startMessage: "Using Kernelspace Proxier.",
  unavailableText: "kernelspace is not available on this host ",
  usesNetfilter: () => false,
  nodePortsEverywhere: true,
  renderFlags: winkernelConfig.flags,
  renderForms: ["text", "json"],
  traceForms: ["load-balancers"],
  loadDumpReader: async () => (await import("./walk-host-plan.ts")).hostReader,
  loadRenderer: async () => (await import("./cluster-plan.ts")).renderKernelspace,
  loadInspection: async () => (await import("./inspect.ts")).inspectKernelspace,
  loadRuntime: async () => (await import("./runtime.ts")).kernelspaceRuntime,
  loadCleanUp: async () => (await import("./runtime.ts")).cleanUp,
};
