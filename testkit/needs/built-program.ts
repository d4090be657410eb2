/** The built program: `npm test -- FILE` builds first if the file reaches this module and a source is newer (scripts/test-needs.mjs). */
import { fileURLToPath } from "node:url";

/** This checkout's program, as its users start it. */
export const KUBE_PROXY = fileURLToPath(new URL("../../bin/kube-proxy", import.meta.url));

/** What the build makes of `src/tools/cli/launch.ts`. */
export const BUILT_MAIN = fileURLToPath(new URL("../../dist/bundle/main.js", import.meta.url));
