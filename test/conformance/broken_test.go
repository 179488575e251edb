package conformance_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// brokenVariable names, in a child process, the broken implementation that a suite runs on.
const brokenVariable = "BACKBONE_BROKEN_IMPLEMENTATION"

// sound is the name of the unbroken store behind the same wrapper: it proves that
// a failure comes from the breakage.
const sound = "sound"

// breakage is a store that breaks one promise, and the sub-tests that must fail on it, as
// Group/promise. No test finds a promise without a breakage: add both together.
type breakage struct {
	name     string
	wrap     func(w *wrapper) conformance.Store
	mustFail []string
}

var broken = []breakage{
	{"ignores the expected version", ignoreVersion, []string{
		"Expectation/exact version of a changed stream is refused", "Expectation/no_stream on an existing stream is refused",
		"Race/one of many wins an expected version", "Model/random operations agree with a simple model", "Model/concurrent appends and reads are linearizable",
	}},
	{"ignores the entity version", ignoreEntity, []string{"Expectation/entity is at the sequence of its last event", "Race/one of many wins an entity version"}},
	{"reorders a batch", reorder, []string{"Append/batch is stored in the given order"}},
	{"reorders a page", reorderPage, []string{"Append/batch is stored in the given order", "Read/pages forward neither overlap nor skip"}},
	{"leaks a refused batch's first event", leakEvent, []string{"Rollback/refused batch writes nothing"}},
	{"leaks a refused batch's business key", leakKey, []string{"Rollback/refused batch writes nothing"}},
	{"skips a sequence", skipSequence, []string{"Append/sequences have no gaps", "Chain/chain recomputes from the genesis"}},
	{"ignores append conditions", ignoreConditions, []string{
		"Condition/matching event after the sequence fails the condition", "Race/one of sixteen wins an append condition", "Model/conditional appends are linearizable",
	}},
	{"matches an item's first key only", matchFirstKey, []string{"Match/item demands one type and all keys", "Match/random items agree with a simple model"}},
	{"reports matches as complete too far", matchTooFar, []string{"Match/matches are complete up to through"}},
	{"answers lineages of any size", longLineage, []string{"Causality/lineage ends at its byte limit"}},
	{"ignores the partition of a cause", ignorePartitionOfCause, []string{"Causality/descendants of a cause in another partition are found"}},
	{"does not end at a cycle", endlessCircle, []string{"Causality/walk through a cycle ends where it began"}},
	{"checks append conditions before the lock", checkTooEarly, []string{"Race/one of sixteen wins an append condition"}},
	{"never finds a condition too old", neverTooOld, []string{"Condition/condition whose keys are all too frequent is too old"}},
	{"ignores business keys", ignoreBusinessKeys, []string{"BusinessKey/business key is never released", "Race/one of many wins a business key"}},
	{"forgets the fingerprint", forgetFingerprint, []string{"Idempotency/same key with other content is refused"}},
	{"forgets the idempotency key", forgetIdempotency, []string{"Idempotency/repeated request returns the first outcome", "Race/one of many is first with an idempotency key"}},
	{"never lets an idempotency key expire", neverExpire, []string{"Idempotency/expired key is free"}},
	{"lets the last writer of an intent win", lastWriterWins, []string{"Intent/update of an older revision is refused", "Race/one of many changes an intent"}},
	{"takes recorded_at from the clock alone", backInTime, []string{"Time/recorded_at never goes backwards"}},
	{"breaks the chain", breakChain, []string{"Chain/chain recomputes from the genesis"}},
	{"changes payload bytes", changePayload, []string{"Append/payload is read byte for byte", "Chain/payloads match their hashes"}},
	{"returns nil instead of empty", nilResults, []string{"Read/empty result is not nil"}},
	{"repeats the event at the edge of a page", overlapPages, []string{"Read/pages forward neither overlap nor skip", "Read/after is exclusive in both directions"}},
	{"burns numbers of refused requests", burnNumbers, []string{"Series/refused request takes no number", "Rollback/refused batch writes nothing", "Race/races and refusals leave no gaps in numbers"}},
	{"appends for a cancelled caller", ignoreCancellation, []string{"Cancellation/cancelled append writes nothing"}},
	{"moves the checkpoint past a failed batch", swallowHandlerError, []string{"Projection/failed handler leaves checkpoint and read model untouched"}},
	{"does not check the term of a lease", ignoreTerm, []string{"Projection/worker of an earlier term is fenced"}},
	{"forgets failures", forgetFailures, []string{"Projection/failures are counted until a success", "Projection/poison event halts its partition"}},
	{"skips every event that fails", alwaysSkipPoison, []string{"Projection/poison event halts its partition", "Projection/fixed partition tries again"}},
	{"keeps one row for all legal entities", mixRows, []string{"Projection/rows belong to version and partition"}},
	{"activates a version that lacks events", ignoreLag, []string{"ProjectionVersions/switch catches up"}},
	{"activates a version that is built", ignoreRole, []string{"ProjectionVersions/one version is active and one is built"}},
	{"advances a dropped version", advanceDropped, []string{"ProjectionVersions/dropped version is not worked again"}},
	{"waits for legal entities that a version does not read", waitForAll, []string{"ProjectionVersions/switch ignores unread partitions"}},
	{"gives every version all events", ignoreTypesOfVersion, []string{"ProjectionVersions/comparison filters types by version"}},
	{"hides that a version was refused", hideRefusedVersion, []string{"ProjectionVersions/one version is active and one is built"}},
	{"ignores the limits of a tenant", ignoreTenantLimits, []string{"ProjectionVersions/tenant limit holds under concurrency", "ProjectionVersions/build limit holds under concurrency"}},
	{"begins a version without checking the active one", ignoreExpectedActive, []string{"ProjectionVersions/expected active version is required"}},
	{"replaces a partition without its rows", replaceNothing, []string{"ProjectionVersions/partition switch swaps rows"}},
	{"begins a version with an empty snapshot", restoreNothing, []string{"ProjectionSnapshots/version starts from a snapshot"}},
	{"keeps rows that are gone", keepRows, []string{"Projection/rows belong to version and partition"}},
	{"changes no revision on a reset", silentReset, []string{"Projection/reset reads from the beginning"}},
	{"applies a batch twice", applyTwice, []string{"Projection/each event is applied exactly once in order"}},
	{"keeps the caller's payload", shareSlices, []string{"Append/store keeps no reference to slices of the caller"}},
	{"checks no key", ignoreKeys, []string{
		"Personal/event sealed with a fenced key is refused", "Personal/event sealed with a destroyed key is refused", "Personal/event sealed with an absent key is refused",
		"Personal/another version of the key asks the caller to seal again", "Personal/keys of other classes, subjects and legal entities do not count",
		"Personal/refused request does not affect concurrent ones", "Personal/sealed intent needs its keys", "Personal/records of a person are found",
		"Personal/keys are checked after the intent and before the streams",
	}},
	{"checks keys too early", checkKeysTooEarly, []string{"Personal/no event is written under a destroyed key"}},
	{"checks keys before the idempotency key", keysFirst, []string{"Personal/replay needs no key"}},
	{"forgets the subjects of an intent", forgetIntentSubjects, []string{"Personal/records of a person are found", "Personal/records of a person are paged"}},
	{"skips an event where a scan stopped", skipAtStop, []string{"Search/random filters agree with a simple model", "Search/bounded scan continues where it stopped"}},
	{"ignores a filter on a dimension", ignoreDimension, []string{"Search/random filters agree with a simple model"}},
	{"compares greater as greater or equal", compareGreaterAsGreaterOrEqual, []string{"Search/predicates agree with their definition"}},
	{"loses an event between pages", dropEventOfPage, []string{"Feed/reader gets every event once while writers append"}},
	{"lets streams live for ever", ignoreStates, []string{
		"Lifecycle/every action in every state", "Lifecycle/expectations on deleted and tombstoned streams", "Lifecycle/events of a request see each other",
		"Lifecycle/deletion among appends is ordered with them", "Lifecycle/one of many recreates a stream", "Lifecycle/no event follows a tombstone",
	}},
	{"checks the state of a stream too early", checkStateTooEarly, []string{"Lifecycle/no event follows a tombstone"}},
	{"ignores access lists", ignoreAccess, []string{"Lifecycle/access list is checked against the roles of the caller"}},
	{"forgets metadata when a stream is deleted", forgetMetadata, []string{"Lifecycle/metadata is kept until it is replaced"}},
	{"returns deleted events", showDeleted, []string{"Lifecycle/every action in every state"}},
	{"deletes a stream in all legal entities", deleteEverywhere, []string{"Lifecycle/streams of other legal entities are unchanged"}},
	{"reads streams forward only", readForward, []string{"Search/stream is read in both directions"}},
	{"answers pages of any size", ignoreBytes, []string{"Search/answer ends at its byte limit"}},
	{"hides that bytes ended a page of a stream", hideMore, []string{"Search/answer ends at its byte limit"}},
	{"saves states folded before a redaction", ignoreEpoch, []string{"Snapshot/snapshot of another epoch is not saved"}},
	{"mixes the states of entities", mixEntities, []string{"Snapshot/snapshots of other entities do not count"}},
	{"takes no state for stale", neverStale, []string{"Snapshot/back-dated event makes snapshots stale"}},
	{"takes every state for stale", alwaysStale, []string{"Snapshot/back-dated event makes snapshots stale"}},
	{"overwrites the states of streams", overwriteSnapshots, []string{"Snapshot/snapshot of a version is never overwritten", "Snapshot/internal snapshots are separate"}},
	{"ignores the as-of time of a stream", forgetAsOf, []string{"AsOf/stream is read as of an earlier event"}},
	{"mixes partitions", mixPartitions, []string{"Append/two legal entities are independent"}},
}

// TestRunEventStoreFailsOnBrokenStore runs the suite on every broken store in a child
// process and demands that the named sub-tests failed there.
func TestRunEventStoreFailsOnBrokenStore(t *testing.T) {
	t.Parallel()
	t.Run(sound, func(t *testing.T) {
		t.Parallel()
		output, err := runChild(t, "TestEventStoreSuite", sound)
		require.NoError(t, err, "the suite fails on a store that is not broken:\n%s", output)
		for _, b := range broken {
			for _, name := range b.mustFail {
				require.Contains(t, output, "--- PASS: TestEventStoreSuite/"+printed(name)+" (", "there is no such sub-test")
			}
		}
	})
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			requireNoticed(t, "TestEventStoreSuite", b.name, b.mustFail)
		})
	}
}

// requireNoticed runs the sub-tests of a suite on the named broken implementation and demands that
// they fail there. A sub-test makes its own fixtures; hundreds of others in each child only
// cost time.
func requireNoticed(t *testing.T, suite, name string, mustFail []string) {
	t.Helper()
	output, err := runChild(t, suite, name, only(mustFail))
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "the suite passes on an implementation that %s", name)
	require.NotContains(t, output, "panic: ", "the suite must fail, not crash")
	var failed []string
	for _, match := range failureLine.FindAllStringSubmatch(output, -1) {
		failed = append(failed, match[1])
	}
	for _, n := range mustFail {
		require.Contains(t, failed, suite+"/"+printed(n))
	}
}

var failureLine = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// printed is the name of a sub-test as `go test` prints it.
func printed(name string) string { return strings.ReplaceAll(name, " ", "_") }

// only is a pattern of sub-tests, and of others whose groups and names both occur in the list.
func only(names []string) string {
	var levels [][]string
	for _, name := range names {
		for i, part := range strings.Split(printed(name), "/") {
			if i == len(levels) {
				levels = append(levels, nil)
			}
			levels[i] = append(levels[i], regexp.QuoteMeta(part))
		}
	}
	var pattern strings.Builder
	for _, parts := range levels {
		pattern.WriteString("/^(" + strings.Join(parts, "|") + ")$")
	}
	return pattern.String()
}

// runChild runs a test of this binary on the named implementation in a child process, since
// the process that reports the failure of a sub-test cannot take it back.
func runChild(t *testing.T, test, name string, subTests ...string) (string, error) {
	t.Helper()
	binary, err := os.Executable()
	require.NoError(t, err)
	child := exec.CommandContext(t.Context(), binary, "-test.run=^"+test+"$"+strings.Join(subTests, ""), "-test.v", "-test.timeout=10m", // for one that hangs
		"-rapid.nofailfile", "-rapid.shrinktime=1ms")
	child.Env = append(os.Environ(), brokenVariable+"="+name)
	child.Dir = t.TempDir()
	output, err := child.CombinedOutput()
	return string(output), err
}

// TestEventStoreSuite runs in the child process only, on the store that the variable names.
func TestEventStoreSuite(t *testing.T) {
	t.Parallel()
	name := os.Getenv(brokenVariable)
	if name == "" {
		return
	}
	wrap := func(w *wrapper) conformance.Store { return w }
	if i := slices.IndexFunc(broken, func(b breakage) bool { return b.name == name }); i >= 0 {
		wrap = broken[i].wrap
	} else {
		require.Equal(t, sound, name)
	}
	keys := memory.NewKeyStore()
	database := func(s conformance.Store) *memory.Database { return s.(interface{ inner() *memory.Database }).inner() }
	conformance.RunEventStore(t, conformance.EventStoreHarness{
		New: func(_ *testing.T, clock ports.Clock) conformance.Store {
			return wrap(&wrapper{MemoryStore: conformance.NewMemoryStore(memory.Config{Clock: clock, Keys: keys}), clock: clock, keys: keys})
		},
		Keys: func(*testing.T, conformance.Store) *conformance.KeyRegister {
			return conformance.NewKeyRegister(keys, keys.Rotation(), keys.Erasures())
		},
		Leases: func(s conformance.Store) ports.Leases { return database(s).Leases },
		ReadModel: func(_ *testing.T, s conformance.Store) conformance.ReadModel {
			return conformance.MemoryReadModel{ReadModels: database(s).ReadModels}
		},
		ConditionRaces: 1000,
	})
}

// wrapper is the sound store that a broken one embeds, overriding what it breaks.
type wrapper struct {
	conformance.MemoryStore
	clock ports.Clock
	keys  *memory.KeyStore
}

func (w *wrapper) inner() *memory.Database { return w.Database }
