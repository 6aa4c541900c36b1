-- The tables of a trace. In memory they are columns; sql() and columns() read them in this form.
-- Every column has a comment, from which docs/format.md is generated (scripts/format_page.py).
-- FORMAT 1

-- One row: what the trace as a whole is.
CREATE TABLE trace (
    format       INTEGER NOT NULL,  -- version of this schema
    name         TEXT    NOT NULL,  -- the name given to record(), or ''
    process      INTEGER NOT NULL,  -- process id
    started_at   REAL    NOT NULL,  -- seconds since 1970
    duration_ns  INTEGER NOT NULL,  -- from start to stop, host time
    complete     INTEGER NOT NULL,  -- 0 while the recording is still running
    left_by      TEXT    NOT NULL   -- JSON list: the exception that left the block, then what it was raised in answer to
);

-- What was lost, not seen, or went wrong in the recorder itself.
CREATE TABLE notes (
    id    INTEGER PRIMARY KEY,  -- order
    text  TEXT NOT NULL         -- the note
);

-- One row for each event, in order of opening.
CREATE TABLE events (
    id          INTEGER PRIMARY KEY,  -- from 0, in order of opening
    kind        TEXT    NOT NULL,     -- module, function, op, call, variable, mark, step, unseen
    name        TEXT    NOT NULL,     -- class, public name of the function, or the user's string
    parent      INTEGER,              -- the event that was open when this one opened
    thread      TEXT    NOT NULL,     -- name of the thread
    phase       TEXT    NOT NULL,     -- forward or backward
    start_ns    INTEGER NOT NULL,     -- monotonic host clock
    end_ns      INTEGER,              -- NULL when it had not ended
    module      INTEGER,              -- row of modules: the innermost module under way, or itself
    call        INTEGER,              -- module events: how often this module had been called before
    args        TEXT    NOT NULL,     -- all arguments as text, tensors as f32[8, 3]
    result      TEXT    NOT NULL,     -- the result as text
    stack       INTEGER,              -- row of stacks
    owner       TEXT,                 -- Class.method of the innermost nn.Module frame
    operator    TEXT,                 -- @ + += [] … when the step was written so
    code        TEXT    NOT NULL,     -- the exact expression, or ''
    direct      INTEGER NOT NULL,     -- 1: that expression itself made the call; 0: torch did, inside of it
    target      TEXT    NOT NULL,     -- names the result is assigned to, separated by ', '
    operands    TEXT    NOT NULL,     -- source text of each tensor argument, separated by ' | '
    file        TEXT,                 -- of the innermost user frame
    line        INTEGER,              -- first line of the expression
    key         TEXT    NOT NULL,     -- the same in two runs of one program
    error       TEXT,                 -- Type: text of the exception that left this event
    note        TEXT                  -- what the reader should know
);

-- Which values an event took and gave.
CREATE TABLE event_values (
    event      INTEGER NOT NULL,  -- row of events
    direction  TEXT    NOT NULL,  -- in or out
    position   INTEGER NOT NULL,  -- from 0 within its direction
    role       TEXT    NOT NULL,  -- x, kv[0], out.logits
    value      INTEGER NOT NULL   -- row of tensor_values
);

-- One row for each tensor at one version.
CREATE TABLE tensor_values (
    id             INTEGER PRIMARY KEY,  -- from 0, in order of first sight
    kind           TEXT    NOT NULL,     -- tensor
    shape          TEXT,                 -- JSON list of sizes; NULL when it has none to tell
    dtype          TEXT    NOT NULL,     -- float32
    device         TEXT    NOT NULL,     -- cuda:0
    stride         TEXT,                 -- JSON list
    layout         TEXT    NOT NULL,     -- strided, sparse_coo …
    requires_grad  INTEGER NOT NULL,     -- 0 or 1
    type           TEXT    NOT NULL,     -- Python class
    storage        INTEGER,              -- equal numbers share memory
    version        INTEGER,              -- in-place version counter
    producer       INTEGER               -- the event that made it
);

-- One row for each module under one path of one root.
CREATE TABLE modules (
    id      INTEGER PRIMARY KEY,  -- from 0, in order of first call
    root    TEXT NOT NULL,        -- label of the root: its class, #2 when two share it
    path    TEXT NOT NULL,        -- '' is the root itself
    name    TEXT NOT NULL,        -- class
    detail  TEXT NOT NULL         -- settings
);

-- The parameters a module has itself, not its children's.
CREATE TABLE parameters (
    module  INTEGER NOT NULL,  -- row of modules
    name    TEXT    NOT NULL,  -- weight
    value   INTEGER NOT NULL   -- row of tensor_values; a shared parameter is the same value
);

-- Stacks, as chains: a stack is its base and the frames below it.
CREATE TABLE stacks (
    id    INTEGER PRIMARY KEY,  -- from 0
    base  INTEGER               -- the stack above, or NULL
);

-- The frames of a stack below its base, outermost first.
CREATE TABLE frames (
    stack     INTEGER NOT NULL,  -- row of stacks
    position  INTEGER NOT NULL,  -- from 0, outermost first
    file      TEXT    NOT NULL,  -- file name
    line      INTEGER NOT NULL,  -- first line
    end_line  INTEGER NOT NULL,  -- last line
    col       INTEGER NOT NULL,  -- first column, from 0
    end_col   INTEGER NOT NULL,  -- behind the last column
    function  TEXT    NOT NULL,  -- qualified name
    source    TEXT    NOT NULL,  -- the source line
    origin    TEXT    NOT NULL   -- user, torch, stdlib, generated
);

-- The user's source files that ran.
CREATE TABLE sources (
    file  TEXT PRIMARY KEY,  -- file name
    text  TEXT NOT NULL      -- whole text
);
