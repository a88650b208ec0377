// What a description can name: each module of the engine enters itself here, so a page carries only
// those that its laboratory imports.

export const ALGORITHMS = {};
export const WORLDS = {}; // name → (settings, images) → {world: null where images are missing, model}
