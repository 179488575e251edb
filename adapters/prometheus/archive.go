package prometheus

import client "github.com/prometheus/client_golang/prometheus"

// archive are the metrics of the archive.
type archive struct {
	read *client.CounterVec
}

func newArchive(f factory) archive {
	return archive{
		read: f.counter("backbone_archive_reads_total", "Files of the archive that readers needed, by outcome: read; kept, in memory since they were read; unavailable; missing; damaged.", "outcome"),
	}
}

// ArchiveRead counts a file that a reader needed.
func (a *archive) ArchiveRead(outcome string) { a.read.WithLabelValues(outcome).Inc() }
