-- The tables of a trace, in memory for sql() and columns(), and in the file events.sqlite of a bundle.
-- Every column has a comment, from which docs/format.md is generated (scripts/format_page.py).
-- What repeats is kept once, as numbered rows; -1 stands for "none" in the compact tables, NULL in the views.
-- FORMAT 3

-- PART To be asked
-- Views and tables with the words of the Python interface. Start here.

-- One row: what the trace as a whole is.
CREATE TABLE trace (
    format       INTEGER NOT NULL,  -- version of this schema
    name         TEXT    NOT NULL,  -- the name given to record(), or ''
    process      INTEGER NOT NULL,  -- process id
    started_at   REAL    NOT NULL,  -- seconds since 1970
    duration_ns  INTEGER NOT NULL,  -- from start to stop, host time
    complete     INTEGER NOT NULL,  -- 0 while the recording is still running, and when its end was lost
    left_by      TEXT    NOT NULL,  -- JSON list: the exception that left the block, then what it was raised in answer to
    linked       INTEGER NOT NULL   -- 1: storage and producer of values are known; 0: not yet, they are found at the end
);

-- What was lost, not seen, or went wrong in the recorder itself.
CREATE TABLE notes (
    id    INTEGER PRIMARY KEY,  -- order
    text  TEXT NOT NULL         -- the note
);

-- One row for each event, in order of opening.
CREATE VIEW events AS SELECT
    e.id AS id,                                   -- from 0, in order of opening
    w.kind AS kind,                               -- module, function, op, call, variable, mark, step, unseen
    w.name AS name,                               -- class, public name of the function, or the user's string
    nullif(e.parent, -1) AS parent,               -- the event that was open when this one opened
    t.name AS thread,                             -- name of the thread
    CASE WHEN e.backward THEN 'backward' ELSE 'forward' END AS phase,  -- forward or backward
    e.start_ns AS start_ns,                       -- monotonic host clock
    e.start_ns + e.duration_ns AS end_ns,         -- NULL when it had not ended
    nullif(e.module, -1) AS module,               -- row of modules: the innermost module under way, or itself
    nullif(e.call, -1) AS call,                   -- module events: how often this module had been called before
    coalesce((
        SELECT group_concat(text, '') FROM (
            SELECT p.text || coalesce(k.word, '') AS text FROM form_parts AS p
            LEFT JOIN json_each(e.io) AS i ON i.key = p.position AND p.role IS NOT NULL
            LEFT JOIN value_rows AS v ON v.id = i.value
            LEFT JOIN metas AS k ON k.id = v.meta
            WHERE p.form = e.args ORDER BY p.position
        )), '') AS args,                          -- all arguments as text, tensors as f32[8, 3]
    coalesce((
        SELECT group_concat(text, '') FROM (
            SELECT p.text || coalesce(k.word, '') AS text FROM form_parts AS p
            LEFT JOIN json_each(e.io) AS i ON i.key = coalesce(a.tensors, 0) + p.position AND p.role IS NOT NULL
            LEFT JOIN value_rows AS v ON v.id = i.value
            LEFT JOIN metas AS k ON k.id = v.meta
            WHERE p.form = e.result ORDER BY p.position
        )), '') AS result,                        -- the result as text
    nullif(e.stack, -1) AS stack,                 -- row of stacks
    o.text AS owner,                              -- Class.method of the innermost nn.Module frame
    CASE WHEN e.direct AND w.kind = 'function' THEN s.operator END AS operator,  -- @ + += [] … when the step was written so
    coalesce(s.code, '') AS code,                 -- the exact expression, or ''
    e.direct AND s.id IS NOT NULL AS direct,      -- 1: that expression itself made the call; 0: torch did, inside of it
    CASE WHEN e.direct AND s.target <> '[]'
        THEN (SELECT group_concat(value, ', ') FROM json_each(s.target))
        ELSE '' END AS target,                    -- names the result is assigned to, separated by ', '
    CASE WHEN n.texts <> '[]'
        THEN (SELECT group_concat(value, ' | ') FROM json_each(n.texts))
        ELSE '' END AS operands,                  -- source text of each tensor argument, separated by ' | '
    s.file AS file,                               -- of the innermost user frame
    s.line AS line,                               -- first line of the expression
    coalesce(m.root || '/' || m.path, '') || '@' || coalesce(s.function || ':' || s.line || ':' || s.col, '')
        || '/' || w.name || '#' || e.occurrence AS key,  -- the same in two runs of one program
    x.text AS error,                              -- Type: text of the exception that left this event
    w.note AS note,                               -- what the reader should know
    CASE w.kind WHEN 'module' THEN coalesce(m.detail, '') ELSE w.detail END AS detail  -- of a module its settings; of a variable: argument, assigned, deleted or changed (in place)
FROM event_rows AS e
LEFT JOIN whats AS w ON w.id = e.what
LEFT JOIN threads AS t ON t.id = e.thread
LEFT JOIN forms AS a ON a.id = e.args
LEFT JOIN modules AS m ON m.id = e.module
LEFT JOIN stacks AS c ON c.id = e.stack
LEFT JOIN sites AS s ON s.id = c.user
LEFT JOIN texts AS o ON o.id = e.owner
LEFT JOIN texts AS x ON x.id = e.error
LEFT JOIN operand_lists AS n ON n.id = e.operands;

-- Which values an event took and gave.
CREATE VIEW event_values AS SELECT
    e.id AS event,                                -- row of events
    CASE WHEN each.key < coalesce(a.tensors, 0) THEN 'in' ELSE 'out' END AS direction,  -- in or out
    p.position AS position,                       -- from 0 within its direction
    p.role AS role,                               -- x, kv[0], out.logits
    each.value AS value                           -- row of tensor_values
FROM event_rows AS e
LEFT JOIN forms AS a ON a.id = e.args
JOIN json_each(e.io) AS each
LEFT JOIN form_parts AS p
    ON p.form = CASE WHEN each.key < coalesce(a.tensors, 0) THEN e.args ELSE e.result END
    AND p.position = each.key - CASE WHEN each.key < coalesce(a.tensors, 0) THEN 0 ELSE coalesce(a.tensors, 0) END;

-- One row for each tensor at one version.
CREATE VIEW tensor_values AS SELECT
    v.id AS id,                                   -- from 0, in order of first sight
    k.kind AS kind,                               -- tensor
    k.shape AS shape,                             -- JSON list of sizes; NULL when it has none to tell
    k.dtype AS dtype,                             -- float32
    k.device AS device,                           -- cuda:0
    k.stride AS stride,                           -- JSON list
    k.layout AS layout,                           -- strided, sparse_coo …
    k.requires_grad AS requires_grad,             -- 0 or 1
    k.type AS type,                               -- Python class
    nullif(v.storage, -1) AS storage,             -- equal numbers share memory
    nullif(v.version, -1) AS version,             -- in-place version counter
    nullif(v.producer, -1) AS producer            -- the event that made it
FROM value_rows AS v
LEFT JOIN metas AS k ON k.id = v.meta;

-- One row for each module under one path of one root.
CREATE TABLE modules (
    id      INTEGER PRIMARY KEY,  -- from 0, in order of first call
    root    TEXT NOT NULL,        -- label of the root: its class, #2 when two share it
    path    TEXT NOT NULL,        -- '' is the root itself
    name    TEXT NOT NULL,        -- class
    detail  TEXT NOT NULL         -- settings
);

-- The parameters a module has itself, not its children's; in order of rowid.
CREATE TABLE parameters (
    module  INTEGER NOT NULL,  -- row of modules
    name    TEXT    NOT NULL,  -- weight
    value   INTEGER NOT NULL   -- row of tensor_values; a shared parameter is the same value
);

-- Stacks, as chains: a stack is its base and the frames below it.
CREATE TABLE stacks (
    id    INTEGER PRIMARY KEY,  -- from 0
    base  INTEGER,              -- the stack above, or NULL
    user  INTEGER               -- row of sites: the innermost user frame of the whole stack, or NULL
);

-- The frames of a stack below its base, outermost first.
CREATE VIEW frames AS SELECT
    f.stack AS stack,        -- row of stacks
    f.position AS position,  -- from 0, outermost first
    s.file AS file,          -- file name
    s.line AS line,          -- first line
    s.end_line AS end_line,  -- last line
    s.col AS col,            -- first column, from 0
    s.end_col AS end_col,    -- behind the last column
    s.function AS function,  -- qualified name
    s.source AS source,      -- the source line
    s.origin AS origin       -- user, torch, stdlib, generated
FROM stack_sites AS f
LEFT JOIN sites AS s ON s.id = f.site;

-- The user's source files that ran.
CREATE TABLE sources (
    file    TEXT PRIMARY KEY,  -- file name
    text    TEXT,              -- whole text; NULL in a bundle, which keeps it as the file sources/<sha256>.py
    sha256  TEXT NOT NULL      -- of the text in UTF-8
);

-- The threads that were recorded.
CREATE TABLE threads (
    id       INTEGER PRIMARY KEY,  -- from 0, in order of first event
    name     TEXT    NOT NULL,     -- #2 is added when two share it
    process  INTEGER NOT NULL      -- process id
);

-- One row for each tensor whose content was kept.
CREATE TABLE saved_tensors (
    id              INTEGER PRIMARY KEY,  -- from 0, in order of saving
    name            TEXT    NOT NULL,     -- given by the user, or ''
    value           INTEGER NOT NULL,     -- row of tensor_values, or -1
    event           INTEGER NOT NULL,     -- row of events: the mark that saved it, or -1
    shard           INTEGER NOT NULL,     -- 3 means the file tensors-0003.safetensors
    offset          INTEGER NOT NULL,     -- of the first byte of its storage, from the beginning of the file
    length          INTEGER NOT NULL,     -- bytes of its storage
    dtype           TEXT    NOT NULL,     -- float32; the shard says U8 where safetensors has no name for it
    shape           TEXT    NOT NULL,     -- JSON list
    stride          TEXT,                 -- JSON list, counted in elements; NULL when contiguous
    storage_offset  INTEGER NOT NULL      -- elements before its first one in its storage
);

-- PART Behind the views
-- The compact form: mostly numbers of rows elsewhere. A view above says the same in words.

-- One row for each event, in order of opening.
CREATE TABLE event_rows (
    id           INTEGER PRIMARY KEY,  -- from 0, in order of opening
    what         INTEGER NOT NULL,     -- row of whats
    parent       INTEGER NOT NULL,     -- an earlier row of event_rows, or -1
    thread       INTEGER NOT NULL,     -- row of threads
    backward     INTEGER NOT NULL,     -- 1: in the backward pass
    start_ns     INTEGER NOT NULL,     -- monotonic host clock
    duration_ns  INTEGER,              -- NULL when it had not ended
    module       INTEGER NOT NULL,     -- row of modules, or -1
    call         INTEGER NOT NULL,     -- module events: how often called before; else -1
    stack        INTEGER NOT NULL,     -- row of stacks, or -1
    owner        INTEGER NOT NULL,     -- row of texts, or -1
    operands     INTEGER NOT NULL,     -- row of operand_lists
    direct       INTEGER NOT NULL,     -- 1: the expression at the innermost user frame made the call itself
    args         INTEGER NOT NULL,     -- row of forms, or -1
    result       INTEGER NOT NULL,     -- row of forms, or -1
    occurrence   INTEGER NOT NULL,     -- how often what the key says had happened before
    error        INTEGER NOT NULL,     -- row of texts, or -1
    io           TEXT    NOT NULL      -- JSON list of rows of value_rows: those it took, then those it gave
);

-- One row for each tensor at one version.
CREATE TABLE value_rows (
    id        INTEGER PRIMARY KEY,  -- from 0, in order of first sight
    meta      INTEGER NOT NULL,     -- row of metas, or -1
    version   INTEGER NOT NULL,     -- in-place version counter, or -1
    storage   INTEGER NOT NULL,     -- equal numbers share memory; -1 not known
    producer  INTEGER NOT NULL,     -- row of event_rows, or -1
    address   INTEGER,              -- of the storage while it lived; NULL once storages are known
    before    INTEGER               -- the value that the same tensor was before a change, or -1; -2 - n: it lies in the memory of value n; NULL likewise
);

-- What happened, without when and where.
CREATE TABLE whats (
    id      INTEGER PRIMARY KEY,  -- from 0
    kind    TEXT NOT NULL,        -- module, function …
    name    TEXT NOT NULL,        -- class, public name of the function, or the user's string
    note    TEXT,                 -- what the reader should know
    detail  TEXT NOT NULL         -- of a variable: argument, assigned, deleted or changed (in place)
);

-- How arguments or results stood, without the tensors.
CREATE TABLE forms (
    id       INTEGER PRIMARY KEY,  -- from 0
    tensors  INTEGER NOT NULL      -- how many tensors it has places for
);

-- The text of a form, piece by piece, each but the last followed by a tensor.
CREATE TABLE form_parts (
    form      INTEGER NOT NULL,  -- row of forms
    position  INTEGER NOT NULL,  -- from 0
    text      TEXT    NOT NULL,  -- before the tensor; of the last row: behind them all
    role      TEXT,              -- of the tensor; NULL in the last row
    PRIMARY KEY (form, position)
) WITHOUT ROWID;

-- What tensors of one kind have in common.
CREATE TABLE metas (
    id             INTEGER PRIMARY KEY,  -- from 0
    kind           TEXT    NOT NULL,     -- tensor
    shape          TEXT,                 -- JSON list of sizes, or NULL
    dtype          TEXT    NOT NULL,     -- float32
    device         TEXT    NOT NULL,     -- cuda:0
    stride         TEXT,                 -- JSON list, or NULL
    layout         TEXT    NOT NULL,     -- strided, sparse_coo …
    requires_grad  INTEGER NOT NULL,     -- 0 or 1
    type           TEXT    NOT NULL,     -- Python class
    word           TEXT    NOT NULL      -- f32[8, 3]
);

-- Errors and owners.
CREATE TABLE texts (
    id    INTEGER PRIMARY KEY,  -- from 0
    text  TEXT NOT NULL         -- the text
);

-- The source text of the tensor arguments of a call.
CREATE TABLE operand_lists (
    id     INTEGER PRIMARY KEY,  -- from 0
    texts  TEXT NOT NULL         -- JSON list
);

-- Places in the code, and what the source says there.
CREATE TABLE sites (
    id        INTEGER PRIMARY KEY,  -- from 0
    file      TEXT    NOT NULL,     -- file name
    line      INTEGER NOT NULL,     -- first line
    end_line  INTEGER NOT NULL,     -- last line
    col       INTEGER NOT NULL,     -- first column, from 0
    end_col   INTEGER NOT NULL,     -- behind the last column
    function  TEXT    NOT NULL,     -- qualified name
    source    TEXT    NOT NULL,     -- the source line
    origin    TEXT    NOT NULL,     -- user, torch, stdlib, generated
    code      TEXT    NOT NULL,     -- the exact expression, or ''
    target    TEXT    NOT NULL,     -- JSON list of the names the result is assigned to
    operator  TEXT,                 -- @ + += [] …
    problem   TEXT                  -- why the source could not be read
);

-- The sites of a stack below its base, outermost first.
CREATE TABLE stack_sites (
    stack     INTEGER NOT NULL,  -- row of stacks
    position  INTEGER NOT NULL,  -- from 0
    site      INTEGER NOT NULL,  -- row of sites
    PRIMARY KEY (stack, position)
) WITHOUT ROWID;
