/** Preloaded: writes this process's Windows process ID to a file named in the environment. */
require("node:fs").writeFileSync(process.env.KPTS_PROCESS_ID, String(process.pid));
