/** `kube-proxy render` in ebpf mode: the packet path. */
import type { ModeRenderer } from "../rendering.ts";
import { packetPath, packetPathConfig } from "./packet-path.ts";

export const renderEbpf: ModeRenderer = async (node, request) => {
  const render = await packetPath().loadRenderer();
  return render(node, { ...request, config: packetPathConfig(request.config) });
};
