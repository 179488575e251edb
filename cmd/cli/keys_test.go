package cli

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/keyrotation"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

func TestDescribeRestore(t *testing.T) {
	t.Parallel()
	behind := fault.New(fault.Unavailable, "pii.receipts_behind", "this database was restored from before an erasure; run `backbone erasure replay`")
	const (
		nothing  = "Nothing came from export 3: the database lacks no key that is in it.\n"
		inStep   = "No erasure is forgotten: the database knows all receipts in the folder of exports.\n"
		withheld = "Until the next step is done, personal data is withheld: this database was restored from before an erasure; run `backbone erasure replay`.\n"
	)
	require.Equal(t, nothing+inStep, describeRestore(keyrotation.Restored{Export: 3}, nil))
	require.Equal(t, nothing+withheld+afterBackup, describeRestore(keyrotation.Restored{Export: 3}, behind))
	require.Equal(t, "1 key came from export 3; 1 epoch is dead.\n"+inStep+afterBackup, describeRestore(keyrotation.Restored{Export: 3, Keys: 1, Dead: make([]ports.KEK, 1)}, nil))
	require.Equal(t, "6 keys came from export 3; 0 epochs are dead.\n"+withheld+afterBackup, describeRestore(keyrotation.Restored{Export: 3, Keys: 6}, behind))
}

// register knows the requests that it lists.
type register map[event.ID]error

func (r register) Erasure(_ context.Context, _ string, id event.ID) (ports.ErasureRequest, error) {
	if err, known := r[id]; known {
		return ports.ErasureRequest{ID: id}, err
	}
	return ports.ErasureRequest{}, fault.New(fault.NotFound, "erasure.not_found", "it is not here; look elsewhere")
}

func TestDescribeReplay(t *testing.T) {
	t.Parallel()
	receipts := []erasure.Receipt{{RequestID: event.ID{1}}, {RequestID: event.ID{2}}, {RequestID: event.ID{3}}}
	lost, err := lostRequests(t.Context(), register{{1}: nil}, receipts)
	require.NoError(t, err)
	require.Equal(t, 2, lost)
	broken := errors.New("away")
	_, err = lostRequests(t.Context(), register{{1}: broken}, receipts)
	require.ErrorIs(t, err, broken)

	require.NotContains(t, describeReplay(3, 0), "backup")
	require.Equal(t, "3 receipts were replayed; the persons they name stay erased. Servers notice within a minute.\n"+
		"The database lacks 2 requests of these erasures. "+afterBackup+"Requests of that time that had no receipt yet have to be made again.\n", describeReplay(3, 2))
	require.Contains(t, describeReplay(1, 0), "1 receipt was replayed; ")
	require.Contains(t, describeReplay(0, 0), "no person was erased")
}
