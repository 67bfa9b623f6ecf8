// The part of a picture that is seen, in the picture's units. Pure: every change gives a new box.

export interface ViewBox {
  x: number;
  y: number;
  width: number;
  height: number;
}

const MOST = 12; // times larger than the whole picture
const READABLE = 0.9; // pixels for each unit of the picture

/** The picture with room around it, so that it has the shape of the paper (width over height). */
export function padded(picture: ViewBox, shape: number): ViewBox {
  const width = Math.max(picture.width, picture.height * shape);
  return { x: picture.x - (width - picture.width) / 2, y: picture.y, width, height: width / shape };
}

/** What is seen at first: all, or the beginning where all would be too small to read. `paper`: its width in pixels. */
export function beginning(picture: ViewBox, whole: ViewBox, paper: number): ViewBox {
  const width = Math.min(whole.width, paper / READABLE);
  const height = (width * whole.height) / whole.width;
  const x = width < picture.width ? picture.x : picture.x - (width - picture.width) / 2;
  return { x, y: whole.y, width, height };
}

/** Factor below 1 zooms in; (`u`, `v`), shares of the box, stay where they are. */
export function zoomed(box: ViewBox, whole: ViewBox, factor: number, u = 0.5, v = 0.5): ViewBox {
  const scale = Math.min(1.05 * (whole.width / box.width), Math.max(whole.width / MOST / box.width, factor));
  const width = box.width * scale;
  const height = box.height * scale;
  return kept({ x: box.x + (box.width - width) * u, y: box.y + (box.height - height) * v, width, height }, whole);
}

/** By shares of the box. */
export function panned(box: ViewBox, whole: ViewBox, right: number, down: number): ViewBox {
  return kept({ ...box, x: box.x + right * box.width, y: box.y + down * box.height }, whole);
}

/** The middle of the box stays within the picture. */
function kept(box: ViewBox, whole: ViewBox): ViewBox {
  const within = (at: number, size: number, from: number, length: number) =>
    Math.min(from + length - size / 2, Math.max(from - size / 2, at));
  return {
    ...box,
    x: within(box.x, box.width, whole.x, whole.width),
    y: within(box.y, box.height, whole.y, whole.height),
  };
}
