/** How much longer than on a usual machine a test waits before it gives up: emulated processors are slow, and share the host's. */
export const PATIENCE = process.env.KPTS_VM === undefined ? 1 : 5;
