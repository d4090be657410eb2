/** Preloaded: writes which process this is, as Windows numbers them, into a file that the environment names. */
require("node:fs").writeFileSync(process.env.KPTS_PROCESS_ID, String(process.pid));
