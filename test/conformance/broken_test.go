package conformance_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// brokenStoreVariable names, in a child process, the store that the suite runs
// on. The child is this test binary again, because a sub-test's failure cannot
// be taken back inside the process that reports it.
const brokenStoreVariable = "BACKBONE_BROKEN_STORE"

// sound is the name of the unbroken store behind the same wrapper: it proves that
// a failure comes from the breakage.
const sound = "sound"

// breakage is a store that breaks one promise, and the sub-tests that must
// notice.
type breakage struct {
	name   string
	wrap   func(w *wrapper) conformance.Store
	notice []string
}

var broken = []breakage{
	{"ignores the expected version", ignoreVersion, []string{
		"Expectation/AnExactVersionIsRefusedWhenTheStreamHasMovedOn", "Expectation/NoStreamIsRefusedOnceTheStreamExists",
		"Race/OneOfManyWinsAnExpectedVersion", "Model/RandomOperationsAgreeWithASimpleModel", "Model/ConcurrentAppendsAndReadsAreLinearizable",
	}},
	{"ignores the entity version", ignoreEntity, []string{"Expectation/AnEntityIsAtTheSequenceOfItsLastEvent", "Race/OneOfManyWinsAnEntityVersion"}},
	{"reorders a batch", reorder, []string{"Append/ABatchIsStoredInTheGivenOrder"}},
	{"reorders a page", reorderPage, []string{"Append/ABatchIsStoredInTheGivenOrder", "Read/PagesForwardMeetAtTheirEdges"}},
	{"leaks a refused batch's first event", leakEvent, []string{"Rollback/ARefusedBatchLeavesNothing"}},
	{"leaks a refused batch's business key", leakKey, []string{"Rollback/ARefusedBatchLeavesNothing"}},
	{"leaks a refused request's intent", leakIntent, []string{"Rollback/ARefusedBatchLeavesNothing"}},
	{"skips a sequence", skipSequence, []string{"Append/SequencesHaveNoGaps", "Chain/TheChainRecomputesFromTheGenesis"}},
	{"ignores append conditions", ignoreConditions, []string{
		"Condition/AConditionIsRefusedWhenAMatchingEventCameAfterItsSequence", "Race/OneOfSixteenWinsAnAppendCondition", "Model/ConditionalAppendsAreLinearizable",
	}},
	{"matches an item's first key only", matchFirstKey, []string{"Match/AnItemAsksForOneTypeAndAllKeys", "Match/RandomItemsMatchAsASimpleModelSays"}},
	{"says that matches are complete too far", matchTooFar, []string{"Match/MatchesAreCompleteUpToThrough"}},
	{"answers lineages of any size", longLineage, []string{"Causality/LineageEndsAtItsBytes"}},
	{"takes any event of the id for the cause", anyCause, []string{"Causality/DescendantsOfACauseElsewhereAreFound"}},
	{"goes round in circles", endlessCircle, []string{"Causality/AWrittenCircleEndsWhereTheWalkBegan"}},
	{"checks append conditions before the lock", checkTooEarly, []string{"Race/OneOfSixteenWinsAnAppendCondition"}},
	{"never finds a condition too old", neverTooOld, []string{"Condition/AConditionOverTooManyKeysIsTooOld"}},
	{"ignores business keys", ignoreBusinessKeys, []string{"BusinessKey/ABusinessKeyIsHeldForEver", "Race/OneOfManyWinsABusinessKey"}},
	{"forgets the fingerprint", forgetFingerprint, []string{"Idempotency/TheSameKeyWithOtherContentIsRefused"}},
	{"forgets the idempotency key", forgetIdempotency, []string{"Idempotency/ARepeatedRequestIsAnsweredWithTheFirstOutcome", "Race/OneOfManyIsFirstWithAnIdempotencyKey"}},
	{"never lets an idempotency key expire", neverExpire, []string{"Idempotency/AnExpiredKeyIsFree"}},
	{"lets the last writer of an intent win", lastWriterWins, []string{"Intent/ALostRaceOnTheRevisionIsRefused", "Race/OneOfManyChangesAnIntent"}},
	{"takes recorded_at from the clock alone", backInTime, []string{"Time/RecordedAtNeverGoesBackwards"}},
	{"breaks the chain", breakChain, []string{"Chain/TheChainRecomputesFromTheGenesis"}},
	{"changes payload bytes", changePayload, []string{"Append/PayloadBytesComeBackVerbatim", "Chain/PayloadsMatchTheirHashes"}},
	{"returns nil instead of empty", nilResults, []string{"Read/AnEmptyResultIsEmptyNotNil"}},
	{"repeats the event at the edge of a page", overlapPages, []string{"Read/PagesForwardMeetAtTheirEdges", "Read/AfterIsExclusiveInBothDirections"}},
	{"burns numbers of refused requests", burnNumbers, []string{"Series/ARefusedRequestTakesNoNumber", "Rollback/ARefusedBatchLeavesNothing", "Race/RacersAndRefusalsLeaveNumbersWithoutGaps"}},
	{"appends although the caller gave up", ignoreCancellation, []string{"Cancellation/ACancelledAppendWritesNothing"}},
	{"moves the checkpoint past a failed batch", swallowHandlerError, []string{"Projection/AFailedHandlerLeavesCheckpointAndReadModelUntouched"}},
	{"lets anybody work", ignoreTerm, []string{"Projection/AWorkerOfAnEarlierTermIsFenced"}},
	{"forgets failures", forgetFailures, []string{"Projection/FailuresAreCountedUntilASuccess", "Projection/APoisonEventHaltsItsPartition"}},
	{"passes over every event that fails", passAlways, []string{"Projection/APoisonEventHaltsItsPartition", "Projection/AFixedPartitionTriesAgain"}},
	{"keeps one row for all legal entities", mixRows, []string{"Projection/RowsBelongToVersionAndPartition"}},
	{"shows a version whatever it lacks", switchAnyhow, []string{"ProjectionVersions/SwitchCatchesUp"}},
	{"shows a version that is built", showNewest, []string{"ProjectionVersions/OneActiveAndOneBuildingVersion"}},
	{"goes on with a version that was dropped", goOnAfterDrop, []string{"ProjectionVersions/DroppedVersionIsNotWorkedAgain"}},
	{"waits for legal entities that a version does not read", waitForAll, []string{"ProjectionVersions/SwitchIgnoresUnreadPartitions"}},
	{"hands all events to every version", handAll, []string{"ProjectionVersions/ComparisonFiltersTypesByVersion"}},
	{"begins versions of nothing", beginNothing, []string{"ProjectionVersions/OneActiveAndOneBuildingVersion"}},
	{"counts nothing of what a tenant has", countNothing, []string{"ProjectionVersions/TenantLimitHoldsUnderConcurrency", "ProjectionVersions/BuildLimitHoldsUnderConcurrency"}},
	{"begins a version after whichever is shown", followWhichever, []string{"ProjectionVersions/ExpectedActiveVersionIsRequired"}},
	{"replaces a partition without its rows", replaceNothing, []string{"ProjectionParts/PartitionSwitchSwapsRows"}},
	{"begins a version with an empty snapshot", restoreNothing, []string{"ProjectionParts/VersionStartsFromSnapshot"}},
	{"keeps rows that are gone", keepRows, []string{"Projection/RowsBelongToVersionAndPartition"}},
	{"keeps what was reset to itself", silentReset, []string{"Projection/AResetReadsFromTheBeginning"}},
	{"applies a batch twice", applyTwice, []string{"Projection/EachEventIsAppliedExactlyOnceInOrder"}},
	{"keeps the caller's payload", shareSlices, []string{"Append/TheStoreKeepsNoReferenceToTheCallersSlices"}},
	{"looks at no key", ignoreKeys, []string{
		"Personal/AFencedKeyRefusesTheAppend", "Personal/ADestroyedKeyRefusesTheAppend", "Personal/AnAbsentKeyRefusesTheAppend",
		"Personal/AnotherVersionOfTheKeyIsSealedAgain", "Personal/KeysOfOtherClassesSubjectsAndLegalEntitiesDoNotCount",
		"Personal/ARefusedNeighbourLeavesTheOthersAlone", "Personal/ASealedIntentNeedsItsKeys", "Personal/APersonsRecordsAreFoundAgain",
		"Personal/KeysComeAfterTheIntentAndBeforeTheStreams",
	}},
	{"looks at keys too early", checkKeysTooEarly, []string{"Personal/NothingIsWrittenUnderADestroyedKey"}},
	{"looks at keys before the idempotency key", keysFirst, []string{"Personal/AReplayNeedsNoKey"}},
	{"forgets whom an intent is about", forgetIntentSubjects, []string{"Personal/APersonsRecordsAreFoundAgain", "Personal/APersonsRecordsComeInPages"}},
	{"skips an event where a scan stopped", skipAtStop, []string{"Search/RandomFiltersAgreeWithASimpleModel", "Search/AScanEndsAndGoesOnWhereItStopped"}},
	{"ignores a filter on a dimension", ignoreDimension, []string{"Search/RandomFiltersAgreeWithASimpleModel"}},
	{"compares loosely", compareLoosely, []string{"Search/PredicatesAgreeWithTheirDefinition"}},
	{"loses an event on the way", loseOnTheWay, []string{"Feed/AFollowerSeesEveryEventOnceWhileWritersWrite"}},
	{"lets streams live for ever", ignoreStates, []string{
		"Lifecycle/EveryActionInEveryState", "Lifecycle/ExpectationsOnADeletedAndATombstonedStream", "Lifecycle/TheEventsOfARequestSeeEachOther",
		"Lifecycle/ADeletionAmongAppendsIsExactlyInItsPlace", "Lifecycle/OneOfManyRecreatesAStream", "Lifecycle/NothingFollowsATombstone",
	}},
	{"looks at a stream's state too early", checkStateTooEarly, []string{"Lifecycle/NothingFollowsATombstone"}},
	{"ignores access lists", ignoreAccess, []string{"Lifecycle/AnAccessListIsHeldAgainstTheRolesOfTheCaller"}},
	{"forgets metadata when a stream is deleted", forgetMetadata, []string{"Lifecycle/MetadataSurviveUntilTheyAreReplaced"}},
	{"shows what was deleted again", showDeleted, []string{"Lifecycle/EveryActionInEveryState"}},
	{"deletes a stream in all legal entities", deleteEverywhere, []string{"Lifecycle/StreamsOfOtherLegalEntitiesStayAsTheyAre"}},
	{"reads streams forward only", readForward, []string{"Search/AStreamIsReadInBothDirections"}},
	{"answers pages of any size", ignoreBytes, []string{"Search/AnAnswerEndsAtItsBytes"}},
	{"hides that bytes ended a page of a stream", hideMore, []string{"Search/AnAnswerEndsAtItsBytes"}},
	{"saves states folded before a redaction", ignoreEpoch, []string{"Snapshot/NothingIsSavedInAnotherEpoch"}},
	{"mixes the states of entities", mixEntities, []string{"Snapshot/SnapshotsOfOthersDoNotCount"}},
	{"takes no state for stale", neverStale, []string{"Snapshot/ABackDatedEventMakesSnapshotsStale"}},
	{"takes every state for stale", alwaysStale, []string{"Snapshot/ABackDatedEventMakesSnapshotsStale"}},
	{"overwrites the states of streams", overwriteSnapshots, []string{"Snapshot/AVersionHasOneContent", "Snapshot/InternalSnapshotsAreApart"}},
	{"shows streams as they are now", forgetAsOf, []string{"AsOf/AStreamIsReadAsItWas"}},
	{"mixes partitions", mixPartitions, []string{"Append/TwoLegalEntitiesAreIndependent"}},
}

// TestTheSuiteFailsOnABrokenStore runs the suite on every broken store in a child
// process and demands that the named sub-tests failed there.
func TestTheSuiteFailsOnABrokenStore(t *testing.T) {
	t.Parallel()
	t.Run(sound, func(t *testing.T) {
		t.Parallel()
		output, err := runOn(t, sound, "")
		require.NoError(t, err, "the suite fails on a store that is not broken:\n%s", output)
		for _, b := range broken {
			for _, name := range b.notice {
				require.Contains(t, output, "--- PASS: TestBrokenStore/"+name, "there is no such sub-test")
			}
		}
	})
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			output, err := runOn(t, b.name, "/^("+groups(b.notice)+")$")
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, "the suite passes on a store that %s", b.name)
			require.NotContains(t, output, "panic: ", "the suite must fail, not crash")
			failed := failures(output)
			for _, name := range b.notice {
				require.Contains(t, failed, "TestBrokenStore/"+name)
			}
		})
	}
}

// runOn runs TestBrokenStore, or those of its groups that matter, in a child process. A
// group creates its own fixtures; hundreds of further sub-tests in each child only cost time.
func runOn(t *testing.T, name, of string) (string, error) {
	t.Helper()
	binary, err := os.Executable()
	require.NoError(t, err)
	child := exec.CommandContext(t.Context(), binary, "-test.run=^TestBrokenStore$"+of, "-test.v", "-test.timeout=10m", // for one that hangs
		"-rapid.nofailfile", "-rapid.shrinktime=1ms")
	child.Env = append(os.Environ(), brokenStoreVariable+"="+name)
	child.Dir = t.TempDir()
	output, err := child.CombinedOutput()
	return string(output), err
}

var failureLine = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

func failures(output string) []string {
	var names []string
	for _, match := range failureLine.FindAllStringSubmatch(output, -1) {
		names = append(names, match[1])
	}
	return names
}

// TestBrokenStore is the child's side: the suite on the store that the variable
// names. Without one it runs on the sound store, which must pass.
func TestBrokenStore(t *testing.T) {
	t.Parallel()
	name := os.Getenv(brokenStoreVariable)
	wrap := func(w *wrapper) conformance.Store { return w }
	if i := slices.IndexFunc(broken, func(b breakage) bool { return b.name == name }); i >= 0 {
		wrap = broken[i].wrap
	} else {
		require.Contains(t, []string{"", sound}, name)
	}
	keys := conformance.NewKeyTable()
	conformance.RunEventStore(t, conformance.Harness{
		New: func(_ *testing.T, clock ports.Clock) conformance.Store {
			return wrap(&wrapper{MemoryStore: conformance.NewMemoryStore(memory.Config{Clock: clock, Keys: keys}), clock: clock, keys: keys})
		},
		Keys: func(*testing.T, conformance.Store) conformance.Keys { return keys },
		Leases: func(s conformance.Store) ports.Leases {
			return s.(interface{ inner() *memory.Database }).inner().Leases
		},
		ReadModel: func(_ *testing.T, s conformance.Store) conformance.ReadModel {
			return readModel{s.(interface{ inner() *memory.Database }).inner().ReadModels}
		},
	})
}

// wrapper is the sound store under a broken one.
type wrapper struct {
	conformance.MemoryStore
	clock ports.Clock
	keys  *conformance.KeyTable
}

func (w *wrapper) inner() *memory.Database { return w.Database }

type readModel struct{ committed *memory.ReadModels }

func (readModel) Put(_ context.Context, tx ports.ProjectionTx, p event.PartitionID, key, value string) error {
	m, err := memory.Bind(tx)
	if err != nil {
		return err
	}
	m.Put("conformance", fmt.Sprintf("%d/%s", p, key), value)
	return nil
}

func (r readModel) Committed(_ context.Context, p event.PartitionID) (map[string]string, error) {
	out := map[string]string{}
	prefix := fmt.Sprintf("%d/", p)
	for _, row := range r.committed.Rows("conformance", prefix) {
		out[strings.TrimPrefix(row.Key, prefix)] = fmt.Sprint(row.Value)
	}
	return out, nil
}
