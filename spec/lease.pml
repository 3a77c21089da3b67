/* The lease protocol of kvseal: who may touch which page, from a request's lease to its answer.
 *
 *   decode   WAITING -lease-> LOADING -Prefill-> ... <-Manifest- pull -DONE-> digest -G5-> proven -G6-> RUNNING
 *   prefill  WAITING -lease-> COMPUTING -pass-> SEALING -digest-> ANNOUNCED -Release-> (page free again)
 *
 * N requests of different tenants, each with one page on either side, share PAGES pages of a decode and of a
 * prefill pool. The network keeps no order. Up to FAULTS times something goes wrong: an abort, a pull that ends
 * in ERROR and lands later (or never), a time limit, a prefill worker that takes its peer for dead ("cut"), a
 * decode worker that does ("lose"), and a crash.
 *
 * Bytes are modelled by their provenance: 0 is NaN (poison), OLD what an earlier life of the process left, and
 * i + 1 the K/V of request i. THE PROPERTY: nothing that a pass may read is of other provenance than its own
 * request. (NaN ends a request without a token.) Every action prints its name as the core's own explorer calls
 * it (tests/exhaustive/world.py), so that a counter-example is replayed against the real cores.
 *
 * Guards are switched off with -DNO_G4 and so on:
 *   G4  a page whose pull is not proven DONE stays out of use      G7  a pass checks its pages' generations
 *   G5  a landed page is accepted by its seal only                 G8  a page is poisoned before it is leased
 *   G6  a pass begins only where everything before it is proven    G10 an answer ends once
 *
 * Not in the model: prefix reuse (G9), new attempts, pages shared by requests, liveness. The explorer has them.
 */

#ifndef N
#define N 3
#endif
#ifndef PAGES
#define PAGES 2
#endif
#ifndef FAULTS
#define FAULTS 3
#endif

#if !defined(NO_G4) && !defined(NO_G5) && !defined(NO_G6) && !defined(NO_G7) && !defined(NO_G8)
#define GUARDED
#endif

#define NONE 255                        /* no page */
#define OLD 254                         /* bytes of nobody who still lives */
#define OWN(i) ((i) + 1)

#ifdef NO_G4
#define PROVEN(page) true
#define PROVES(outcome_done) true
#else
#define PROVEN(page) (unproven[page] == 0)
#define PROVES(outcome_done) (outcome_done)
#endif
#ifdef NO_G5
#define SEALED(i, page) true
#else
#define SEALED(i, page) (bytes[page] == seal[i])
#endif
#ifdef NO_G6
#define READABLE(i) true
#else
#define READABLE(i) proven[i]
#endif
#ifdef NO_G7
#define SAME_LIFE(i) true
#else
#define SAME_LIFE(i) (pinned[i] == generation[lease[i]])
#endif

mtype = { NEW, WAITING, LOADING, RUNNING, ENDED, COMPUTING, SEALING, ANNOUNCED };

byte submitted, faults;
bool known = true;                      /* decode may ask the prefill worker */

/* decode: one entry per request ... */
mtype state[N] = NEW;
byte lease[N] = NONE;                   /* its page; kept after the end, for passes that were planned before */
byte pinned[N];                         /* the generation in which the page was leased */
bool proven[N];                         /* G6: the extent covers all but the last token of the prompt */
bool asked[N];                          /* prefill works for it, Release not said yet */
bool posted[N];                         /* the page was announced and pulled */
bool checking[N];                       /* a digest of the landed page is on its way */
bool plan[N], pass[N];                  /* in the planned pass, in the running one */
/* ... and per page: the book */
byte bytes[PAGES] = OLD, generation[PAGES], holders[PAGES], unproven[PAGES];
bool is_free[PAGES] = true;
byte stack[PAGES], free_pages;

/* prefill: the same, without generations */
mtype job[N] = NEW;
byte source[N] = NONE, queue[N] = NONE, queued;
bool sealing[N];                        /* a digest is on its way, whether or not its job still lives */
byte sealed_page[N];
byte source_bytes[PAGES] = OLD, source_stack[PAGES], source_free;

/* the network and the transport */
bool prefill[N], manifest[N], release[N];
byte place[N], seal[N];                 /* what the manifest says */
bool flying[N], reported[N];            /* a pull is on its way; ERROR was reported for it already */
byte landing[N], payload[N];            /* its page; its bytes once they no longer follow the source (or NONE) */

byte k, q, page, last;                   /* loop variables, 0 between actions */

#define LIVE(i) (state[i] == LOADING || state[i] == RUNNING)
#define CAN_RUN(i) (state[i] == RUNNING && !plan[i] && !pass[i])
#define IN(list) (list[0] || list[1] || list[N - 1])

/* ---------------------------------------------------------------------- the book of the decode pool (pages.py) */

inline push(p) { stack[free_pages] = p; free_pages++; is_free[p] = true }

inline let_go(p) {                      /* one holder less: free, or in quarantine (G4) */
    holders[p]--;
    if
    :: holders[p] == 0 && PROVEN(p) -> push(p)
    :: else
    fi
}

inline pull_ended(p, done) {
    if
    :: PROVES(done) ->
        unproven[p]--;
        if
        :: holders[p] == 0 && unproven[p] == 0 && !is_free[p] -> push(p)
        :: else
        fi
    :: else
    fi
}

/* ---------------------------------------------------------------------------- decode (decode.py, loading.py) */

inline give_source_back(r) {
    if
    :: asked[r] -> asked[r] = false; release[r] = true
    :: else
    fi
}

inline end(r) {                         /* the one way out (G10): pages back once, and the source's too */
    assert(state[r] != ENDED);
    if
    :: LIVE(r) -> let_go(lease[r])
    :: else
    fi;
    state[r] = ENDED; proven[r] = false; posted[r] = false;
    give_source_back(r)
}

inline maybe_start(r) {
    if
    :: state[r] == LOADING && READABLE(r) -> state[r] = RUNNING; give_source_back(r)
    :: else
    fi
}

inline lease_waiting() {                /* first come, first served; after every event */
    for (q : 0 .. N - 1) {
        if
        :: state[q] == WAITING && known && free_pages > 0 ->
            free_pages--; page = stack[free_pages]; stack[free_pages] = 0; is_free[page] = false;
            generation[page]++; holders[page] = 1;
#ifndef NO_G8
            bytes[page] = 0;
#endif
            lease[q] = page; pinned[q] = generation[page];
            state[q] = LOADING; asked[q] = true; prefill[q] = true;
            maybe_start(q)
        :: else
        fi
    }
    q = 0; page = 0
}

inline fail_loading() {
    for (k : 0 .. N - 1) {
        if
        :: state[k] == LOADING -> end(k)
        :: else
        fi
    }
    k = 0
}

inline peer_lost() {
    known = false;
    for (k : 0 .. N - 1) { asked[k] = false }
    fail_loading()
}

/* --------------------------------------------------------------------------------------- prefill (prefill.py) */

inline source_lease() {                 /* the oldest first; the head of the queue that cannot be served blocks */
    for (q : 0 .. N - 1) {
        if
        :: q < queued && job[queue[q]] == WAITING && source_free > 0 ->
            source_free--; source[queue[q]] = source_stack[source_free]; source_stack[source_free] = 0;
#ifndef NO_G8
            source_bytes[source[queue[q]]] = 0;
#endif
            job[queue[q]] = COMPUTING
        :: else
        fi
    }
    q = 0
}

inline source_end(r) {                  /* leave the queue, give the page back */
    if
    :: source[r] != NONE ->
        source_stack[source_free] = source[r]; source_free++; source[r] = NONE
    :: else
    fi;
    job[r] = NEW; last = 0;
    for (q : 0 .. N - 1) {
        if
        :: q < queued && queue[q] != r -> queue[last] = queue[q]; last++
        :: else
        fi
    }
    queued = last; last = 0;
    for (q : 0 .. N - 1) {
        if
        :: q >= queued -> queue[q] = NONE
        :: else
        fi
    }
    q = 0
}

/* ---------------------------------------------------------------------------------------------- the property */

inline check() {
    for (k : 0 .. N - 1) {
        assert(!pass[k] || bytes[lease[k]] == 0 || bytes[lease[k]] == OWN(k));
        if
        :: proven[k] ->
#ifdef GUARDED
            assert(bytes[lease[k]] == OWN(k))
#else
            assert(bytes[lease[k]] == 0 || bytes[lease[k]] == OWN(k))
#endif
        :: else
        fi;
        assert((job[k] != SEALING && job[k] != ANNOUNCED) || source_bytes[source[k]] == OWN(k))
    }
#ifdef GUARDED
    for (k : 0 .. PAGES - 1) { assert(!is_free[k] || (holders[k] == 0 && unproven[k] == 0)) }
#endif
    k = 0
}

/* ------------------------------------------------------------------------- what may happen to one request */

proctype request(byte i) {
    do
    :: d_step { i == submitted && state[i] == NEW ->
        printf("ACT submit\n");
        submitted++; state[i] = WAITING; lease_waiting(); check() }
    :: d_step { prefill[i] ->
        printf("ACT deliver Prefill r%d.1\n", i);
        prefill[i] = false; job[i] = WAITING; queue[queued] = i; queued++; source_lease(); check() }
    :: d_step { sealing[i] ->           /* the seal of what is in the page now; nobody listens if the job ended */
        printf("ACT digest source r%d.1#0\n", i);
        sealing[i] = false;
        if
        :: job[i] == SEALING ->
            job[i] = ANNOUNCED; manifest[i] = true;
            place[i] = source[i]; seal[i] = source_bytes[sealed_page[i]]; payload[i] = NONE
        :: else
        fi;
        sealed_page[i] = 0; check() }
    :: d_step { manifest[i] ->
        printf("ACT deliver Manifest r%d.1#0\n", i);
        manifest[i] = false;
        if
        :: LIVE(i) && !posted[i] ->
            posted[i] = true; unproven[lease[i]]++;
            flying[i] = true; landing[i] = lease[i]; maybe_start(i)
        :: else -> place[i] = 0; seal[i] = 0; payload[i] = 0
        fi;
        lease_waiting(); check() }
    :: d_step { flying[i] && !reported[i] ->
        printf("ACT done r%d.1#0\n", i);
        bytes[landing[i]] = (payload[i] == NONE -> source_bytes[place[i]] : payload[i]);
        flying[i] = false; payload[i] = 0;
        pull_ended(landing[i], true);
        if
        :: LIVE(i) && posted[i] -> checking[i] = true
        :: else -> place[i] = 0; seal[i] = 0
        fi;
        landing[i] = 0; lease_waiting(); check() }
    :: d_step { flying[i] && !reported[i] && faults < FAULTS ->
        printf("ACT error r%d.1#0\n", i);
        faults++; reported[i] = true;
        payload[i] = (payload[i] == NONE -> source_bytes[place[i]] : payload[i]); place[i] = 0; seal[i] = 0;
        pull_ended(landing[i], false);
        if
        :: LIVE(i) -> end(i)
        :: else
        fi;
        lease_waiting(); check() }
    :: d_step { flying[i] && reported[i] ->
        printf("ACT land r%d.1#0!\n", i);
        bytes[landing[i]] = payload[i];
        flying[i] = false; reported[i] = false; payload[i] = 0; landing[i] = 0; check() }
    :: d_step { checking[i] ->
        printf("ACT digest landed r%d.1#0\n", i);
        checking[i] = false;
        if
        :: !LIVE(i)
        :: else ->
            if
            :: SEALED(i, lease[i]) -> proven[i] = true; maybe_start(i)
            :: else -> end(i)
            fi
        fi;
        place[i] = 0; seal[i] = 0; lease_waiting(); check() }
    :: d_step { release[i] ->
        printf("ACT deliver Release r%d.1\n", i);
        release[i] = false;
        if
        :: job[i] != NEW -> source_end(i)
        :: else
        fi;
        source_lease(); check() }
    :: d_step { state[i] != NEW && state[i] != ENDED && faults < FAULTS ->
        printf("ACT abort %d\n", i);
        faults++; end(i); lease_waiting(); check() }
    od
}

/* -------------------------------------------------------------------------------- what may happen to all of them */

proctype workers() {
    do
    :: d_step { !IN(plan) && (CAN_RUN(0) || CAN_RUN(1) || CAN_RUN(N - 1)) ->
        printf("ACT plan\n");
        for (k : 0 .. N - 1) { plan[k] = CAN_RUN(k) }
        check() }
    :: d_step { IN(plan) && !IN(pass) -> /* G7: the pages may have been given back since, or leased again */
        printf("ACT begin\n");
        for (k : 0 .. N - 1) {
            if
            :: plan[k] && holders[lease[k]] > 0 && SAME_LIFE(k) -> holders[lease[k]]++; pass[k] = true
            :: else
            fi;
            plan[k] = false
        }
        check() }
    :: d_step { IN(pass) ->             /* one token each, or none where NaN was read: both end the request here */
        printf("ACT finish\n");
        for (k : 0 .. N - 1) {
            if
            :: pass[k] ->
                pass[k] = false;
                if
                :: state[k] == RUNNING -> end(k)
                :: else
                fi;
                let_go(lease[k])
            :: else
            fi
        }
        lease_waiting(); check() }
    :: d_step { job[0] == COMPUTING || job[1] == COMPUTING || job[N - 1] == COMPUTING ->
        printf("ACT plan prefill\n");
        for (k : 0 .. N - 1) {
            if
            :: job[k] == COMPUTING ->
                source_bytes[source[k]] = OWN(k);
                job[k] = SEALING; sealing[k] = true; sealed_page[k] = source[k]
            :: else
            fi
        }
        check() }
    :: d_step { !known -> printf("ACT join\n"); known = true; lease_waiting(); check() }
    :: d_step { faults < FAULTS && (state[0] == LOADING || state[1] == LOADING || state[N - 1] == LOADING) ->
        printf("ACT timeout\n");
        faults++; fail_loading(); lease_waiting(); check() }
    :: d_step { faults < FAULTS && known ->
        printf("ACT lose\n");
        faults++; peer_lost(); check() }
    :: d_step { faults < FAULTS && queued > 0 ->
        printf("ACT cut\n");
        faults++;
        for (k : 0 .. N - 1) {          /* in the order in which they came */
            if
            :: queued > 0 -> page = queue[0]; source_end(page)
            :: else
            fi
        }
        page = 0; check() }
    :: d_step { faults < FAULTS ->      /* the memory of the dead stays readable, and what they said is still heard */
        printf("ACT crash\n");
        faults++;
        for (k : 0 .. N - 1) {
            if
            :: (manifest[k] || flying[k]) && payload[k] == NONE -> payload[k] = source_bytes[place[k]]
            :: else
            fi;
            job[k] = NEW; source[k] = NONE; queue[k] = NONE;
            sealing[k] = false; sealed_page[k] = 0; prefill[k] = false; release[k] = false
        }
        queued = 0; source_free = PAGES;
        for (k : 0 .. PAGES - 1) { source_stack[k] = PAGES - 1 - k; source_bytes[k] = OLD }
        peer_lost(); check() }
    od
}

init {
    d_step {
        for (k : 0 .. PAGES - 1) { stack[k] = PAGES - 1 - k; source_stack[k] = PAGES - 1 - k }
        free_pages = PAGES; source_free = PAGES; k = 0
    }
    atomic {
        for (k : 0 .. N - 1) { run request(k) }
        k = 0; run workers()
    }
}
