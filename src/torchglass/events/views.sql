-- What people ask of a trace, with the words of the Python interface; the tables behind are in schema.py.
-- Every column has a comment, from which docs/format.md is made (scripts/format_page.py).
-- What repeats is kept once, as numbered rows; -1 stands for "none" in the tables, NULL in these views.

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
    nullif(e.python_call, -1) AS python_call,     -- variables: equal numbers are one call of a Python function
    nullif(e.forward, -1) AS forward_event,       -- in backward: the event whose autograd node was run
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
    nullif(v.producer, -1) AS producer,           -- the event that made it
    v.count AS count,                             -- how many numbers it holds; NULL when they were not measured
    v.nan AS nan,                                 -- how many are NaN
    v.posinf AS posinf,                           -- how many are +Inf
    v.neginf AS neginf,                           -- how many are -Inf
    v.zeros AS zeros,                             -- how many are 0
    v.min AS min,                                 -- the smallest finite number; NULL when there is none
    v.max AS max,                                 -- the largest finite number
    v.mean AS mean,                               -- mean of the finite numbers
    v.std AS std,                                 -- their standard deviation, of the population
    v.norm AS norm                                -- the square root of the sum of their squares
FROM value_rows AS v
LEFT JOIN metas AS k ON k.id = v.meta;

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
