/** What builds an image: `npm test -- FILE` installs what is missing if the file reaches this module (scripts/test-needs.mjs). */

export const IMAGE_TOOLS: readonly string[] = ["/usr/bin/buildah", "/usr/sbin/debootstrap"];
