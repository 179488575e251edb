package administration

import (
	"context"
	"errors"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// pageEvents is how many events are read at once.
const pageEvents = 500

// queryTimeout bounds each query of a caller that holds a lock: others wait for it, who may be
// in a transaction, and such callers together may hold all connections.
const queryTimeout = 10 * time.Second

// brokenPause is how long a broken log is not read again while its head stays the same: every
// request, whatever its token, would read all of it.
const brokenPause = 10 * time.Second

// unreadPause is how long a log that the database could not deliver is not read again while its
// head stays the same.
const unreadPause = time.Second

// pauseAfter is how long a log is not read again after an error.
func pauseAfter(err error) time.Duration {
	if IsBroken(err) || tooSlow(err) != nil {
		return brokenPause
	}
	return unreadPause
}

// tooSlow returns the error of a query that took too long. It ends the reading of all logs, so that
// callers wait for one such query at most; the next reads the others, while that log pauses.
func tooSlow(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

func withQueryTimeout(ctx context.Context, query func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err := query(within)
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		return fault.New(fault.Unavailable, "store.unavailable", "the database did not answer in time; try again").WithCause(err)
	}
	return err
}

// readHeads lists the log of a tenant, or all logs without one, and where they end.
func readHeads(ctx context.Context, entities ports.LegalEntities, of Heads, tenantID string) (logs []ports.LegalEntity, heads map[event.PartitionID]ports.Head, err error) {
	err = withQueryTimeout(ctx, func(ctx context.Context) (err error) {
		if logs, err = entities.AdministrativeLogs(ctx, tenantID); err != nil {
			return err
		}
		partitions := make([]event.PartitionID, len(logs))
		for i, log := range logs {
			partitions[i] = log.Partition
		}
		heads, err = of.Heads(ctx, partitions)
		return err
	})
	return logs, heads, err
}

// readPage reads the next events of a log. An error is that of the log, unless ctx has ended.
func readPage(ctx context.Context, chains ports.ChainReader, p event.PartitionID, after event.Sequence) (page []event.Recorded, err error) {
	err = withQueryTimeout(ctx, func(ctx context.Context) (err error) {
		page, err = chains.ChainPage(ctx, p, after, pageEvents)
		return err
	})
	return page, err
}
