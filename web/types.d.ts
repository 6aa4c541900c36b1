// What the parts of the page hand to each other, for `tsc --checkJs`. Nothing of this file is in the built page.

declare global {
  interface Window {
    /** The page, for tests and for the console. */
    torchglass: any;
  }
}

/** A place in the source text. */
export interface Place {
  file: number;
  line: number;
  endLine: number;
  col: number;
  endCol: number;
  function: string;
  path: string;
}

/** What is said once of all events that are alike. */
export interface Sample {
  kind: string;
  name: string;
  code: string;
  detail: string;
  args: string;
  result: string;
  module: string;
  at: Place | null;
  stack: Place[];
  error: string;
  note: string;
  thread: string;
  roles: string[];
  results: string[];
  operands: string[];
  target: string[];
  phase: string;
  process: number;
  /** The model that the module is in. */
  root: string;
}

/** A row of the steps and a box of the data flow: one event, several that are alike, or the rounds of a loop. */
export interface Item {
  number: number;
  parent: number;
  /** How often in a row, at most. */
  most: number;
  hasRounds: boolean;
  /** The events it stands for; none for a loop or a group. */
  nodes: number[];
  /** For each of its times, in which time of the item around it that was. */
  slots: number[];
  /** Of a loop of which only some rounds were kept: which of all rounds of the run each is, from 1. */
  numbers: number[] | null;
  /** How many rounds the whole run had. */
  total: number;
  children: Item[];
  kind: string;
  hue: string;
  title: string;
  detail: string;
  variable: string;
  gives: string;
  code: string;
  often: string;
  only: string;
  /** The thread or process, where there are several and it is an outermost one. */
  where: string;
}

/** One value on its way between two children of an item; -1 is the item's own border, below that values from outside. */
export interface FlowEdge {
  from: number;
  out: number;
  to: number;
  into: number;
  shape: string;
  name: string;
  isBack: boolean;
  isBad: boolean;
}

export interface Level {
  edges: FlowEdge[];
  outside: { word: string; shape: string; isUnknown: boolean }[];
  ins: string[];
  outs: string[];
}

export interface Events {
  size: number;
  sample: number[];
  parent: Int32Array;
  start: Float64Array;
  spent: number[];
  takes: number[][];
  gives: number[][];
  within: Map<number, number>;
}

export interface Model {
  verdict: any;
  trail: any;
  /** By name what happened to parameters: root, module, events, norms; null is not finite. */
  series: Record<string, [string, string, number[], (number | null)[]][]>;
  run: { name: string; events: number; took: string; complete: boolean; failed: number; error: string; notes: string[] };
  text: string[];
  /** Nanoseconds of one tick of the clock. */
  tick: number;
  items: Item[];
  levels: Map<number, Level>;
  top: Item[];
  samples: Sample[];
  /** The first event of each sample. */
  firstOf: number[];
  files: any[];
  events: Events;
  values: { word: string[]; maker: number[]; parameters: Set<number>; stats: Record<string, any> };
  sources: Map<string, number>;
  itemOf: Map<number, Item>;
  readers: Map<number, number[]>;
  byLine: Map<string, number[]>;
  failing: Set<number>;
}

/** What a search found. */
export interface Found {
  /** In order. */
  events: Set<number>;
  inOrder: number[];
  hits: Set<number>;
  items: Set<number>;
  around: Set<number>;
  count: number;
  first: number;
}

/** Something to draw: a shape or a word with its place on the sheet, and what it belongs to. */
export interface Mark {
  t: "rect" | "circle" | "path" | "text";
  c: string;
  x?: number;
  y?: number;
  w?: number;
  h?: number;
  r?: number;
  d?: string;
  s?: string;
  anchor?: string;
  arrow?: boolean;
  /** The item that a click on it selects. */
  item?: number;
  /** The item that a click on it opens or closes. */
  toggle?: number;
  /** The item that it is part of. */
  of?: number;
  /** Of an edge: the items at its ends, and which result and argument it joins there. */
  from?: number;
  to?: number;
  out?: number;
  into?: number;
  isBad?: boolean;
  /** Of a word beside a line that ends with what is not finite: the word without that, and the item that gave it. */
  plain?: string;
  giver?: number;
  /** Of what the pointer meets of an edge: its number among the marks. */
  edge?: number;
}

export interface Scene {
  w: number;
  h: number;
  marks: Mark[];
  boxes: number;
}

export interface Row {
  item: Item;
  depth: number;
}

/** The page: one selection, what is open, which rounds are shown. */
export interface App {
  model: Model;
  open: Set<number>;
  rounds: Map<number, number>;
  selected: number;
  item: Item | null;
  near: Map<number, string>;
  found: Found | null;
  process: number | null;
  panes: any;
  trail: any;
  marks: any;
  diff: any;
  overlays: any;
  shows(item: Item): boolean;
  processOf(item: Item): number;
  emptyWord(): string;
  shown(item: Item): { at: number; isThere: boolean };
  eventOf(item: Item): number;
  firstInside(item: Item): number;
  select(event: number, isFollowed?: boolean, item?: Item | null): void;
  selectItem(item: Item, isFollowed?: boolean): void;
  selectEdge(mark: Mark): void;
  toggle(item: Item): void;
  openAll(): void;
  closeAll(): void;
  turn(item: Item, to: number): void;
  scrub(loop: Item, to: number, at: number): void;
  goToRound(loop: Item, at: number): void;
  roundButtons(): Node[];
  save(kind: string, text: string): void;
  drawAll(): void;
}
