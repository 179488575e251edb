package keyrotation

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// An export of the key store is a folder "keystore/<number>" of the export store. It has
// begun.json, which claims the number, parts of compressed lines, and manifest.json. Export
// writes the manifest last, so a folder without one is incomplete. It claims the number
// before it reads the key store, so it holds everything that the key store held when an
// export with a smaller number began, whatever the nodes' clocks say.
const (
	exportFolder   = "keystore/"
	exportFormat   = 1
	exportPartSize = 4 << 20 // bytes of lines before compression
)

// Export describes a complete export of the key store.
type Export struct {
	Format int          `json:"format"`
	Number uint64       `json:"number"`
	MadeAt time.Time    `json:"made_at"`
	Lines  int64        `json:"lines"`
	Parts  []ExportPart `json:"parts"`
}

// ExportPart is one document of an export.
type ExportPart struct {
	Name   string `json:"name"`
	Lines  int64  `json:"lines"`
	SHA256 string `json:"sha256"` // hexadecimal, of the document as stored
}

func exportName(number uint64, document string) string {
	return fmt.Sprintf("%s%010d/%s", exportFolder, number, document)
}

// Export writes the tables of the key store to the export store and reads the manifest back.
// Progress counts lines. Exports with smaller numbers stay until Rotate removes them.
func (s *Service) Export(ctx context.Context, progress Progress) (Export, error) {
	number, err := s.claimExport(ctx)
	if err != nil {
		return Export{}, err
	}
	e := Export{Format: exportFormat, Number: number, MadeAt: s.c.Clock.Now().UTC()}
	var lines bytes.Buffer
	var inPart int64
	flush := func() error {
		if inPart == 0 {
			return nil
		}
		content, err := compress(lines.Bytes())
		if err != nil {
			return err
		}
		part := ExportPart{Name: exportName(number, fmt.Sprintf("part-%05d.jsonl.gz", len(e.Parts)+1)), Lines: inPart, SHA256: digest(content)}
		if err := s.c.Exports.PutIfAbsent(ctx, part.Name, content); err != nil {
			return err
		}
		e.Parts = append(e.Parts, part)
		e.Lines += inPart
		lines.Reset()
		inPart = 0
		progress.report("", 5, "Exporting the key store", e.Lines, 0)
		return nil
	}
	err = s.c.Keys.ExportKeys(ctx, func(line []byte) error {
		if bytes.IndexByte(line, '\n') >= 0 {
			return fault.New(fault.Internal, "keys.export_damaged", "a line of the key store contains a line break; nothing was exported, report this defect")
		}
		lines.Write(line)
		lines.WriteByte('\n')
		inPart++
		if lines.Len() < exportPartSize {
			return nil
		}
		return flush()
	})
	if err = errors.Join(err, flush()); err != nil {
		return Export{}, err
	}
	manifest, err := json.Marshal(e)
	if err != nil {
		return Export{}, err
	}
	if err := s.c.Exports.PutIfAbsent(ctx, exportName(number, "manifest.json"), manifest); err != nil {
		return Export{}, err
	}
	return s.readExport(ctx, number)
}

// claimExport claims the next number for this process.
func (s *Service) claimExport(ctx context.Context) (uint64, error) {
	claim, err := json.Marshal(map[string]string{"node": s.c.Node, "at": s.c.Clock.Now().UTC().Format(time.RFC3339Nano)})
	if err != nil {
		return 0, err
	}
	for {
		names, err := s.c.Exports.List(ctx, exportFolder)
		if err != nil {
			return 0, err
		}
		var newest uint64
		for _, name := range names {
			newest = max(newest, numberOf(name))
		}
		err = s.c.Exports.PutIfAbsent(ctx, exportName(newest+1, "begun.json"), claim)
		if fault.CodeOf(err) != "export.name_taken" {
			return newest + 1, err
		}
	}
}

// numberOf returns the number of the export that a document belongs to, 0 if it belongs to
// none.
func numberOf(name string) uint64 {
	rest, _ := strings.CutPrefix(name, exportFolder)
	digits, _, _ := strings.Cut(rest, "/")
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// readExport reads the manifest of a complete export, the newest for number 0.
//
//	keys.export_missing  NotFound
//	keys.export_damaged  Invalid: a part is missing or not what was written
func (s *Service) readExport(ctx context.Context, number uint64) (Export, error) {
	exports, err := s.completeExports(ctx)
	if err != nil {
		return Export{}, err
	}
	if number == 0 && len(exports) > 0 {
		number = exports[len(exports)-1]
	}
	if !slices.Contains(exports, number) {
		return Export{}, fault.New(fault.NotFound, "keys.export_missing", "the export store has no such complete export of the key store; look into the folder keystore of the export store for those that have a manifest.json, or make one with `backbone keys export`")
	}
	content, err := s.c.Exports.Get(ctx, exportName(number, "manifest.json"))
	if err != nil {
		return Export{}, err
	}
	var e Export
	if err := json.Unmarshal(content, &e); err != nil || e.Format != exportFormat || e.Number != number {
		return Export{}, damagedExport(number).WithCause(err)
	}
	return e, nil
}

// completeExports lists the numbers of the complete exports, ascending.
func (s *Service) completeExports(ctx context.Context) ([]uint64, error) {
	names, err := s.c.Exports.List(ctx, exportFolder)
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, name := range names {
		if n := numberOf(name); n > 0 && strings.HasSuffix(name, "/manifest.json") {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

func damagedExport(number uint64) *fault.Error {
	return fault.New(fault.Invalid, "keys.export_damaged", "export %d of the key store is damaged; take another copy of the folder of exports, or another export", number)
}

// lines reads an export part by part and compares every part with its digest.
func (s *Service) lines(ctx context.Context, e Export) ports.ExportedLines {
	return func(yield func([]byte) bool) error {
		for _, part := range e.Parts {
			content, err := s.c.Exports.Get(ctx, part.Name)
			if fault.KindOf(err) == fault.NotFound || err == nil && digest(content) != part.SHA256 {
				return damagedExport(e.Number)
			}
			if err != nil {
				return err
			}
			if content, err = decompress(content); err != nil {
				return damagedExport(e.Number).WithCause(err)
			}
			for line := range bytes.Lines(content) {
				if !yield(bytes.TrimSuffix(line, []byte{'\n'})) {
					return nil
				}
			}
		}
		return nil
	}
}

// proveExport exports the key store, loads the export into scratch tables and unwraps keys
// from there. Only then may Rotate delete the old KEK: only the database and this export
// hold the keys wrapped with the new one. proveExport removes older exports, which hold keys
// of persons that were erased since.
func (s *Service) proveExport(ctx context.Context, kek ports.KEK, progress Progress) (uint64, error) {
	progress.report(kek.TenantID, 5, "Proving that an export restores", 0, 0)
	before, err := s.c.Keys.CountWrappedWith(ctx, kek.TenantID, kek.Epoch)
	if err != nil {
		return 0, err
	}
	e, err := s.Export(ctx, progress)
	if err != nil {
		return 0, err
	}
	sample, total, err := s.c.Recovery.SampleExport(ctx, s.lines(ctx, e), kek.TenantID, kek.Epoch, SampleSize)
	if err != nil {
		return 0, err
	}
	after, err := s.c.Keys.CountWrappedWith(ctx, kek.TenantID, kek.Epoch)
	if err != nil {
		return 0, err
	}
	if total < min(before, after) || len(sample) == 0 && total > 0 {
		return 0, fault.New(fault.Internal, "keys.export_incomplete", "the export holds %d keys of the epoch, the store %d; the old epoch is kept, rotate again", total, after)
	}
	if err := s.proveKeys(ctx, kek, sample); err != nil {
		return 0, err
	}
	return e.Number, s.removeExportsBefore(ctx, e.Number)
}

func (s *Service) removeExportsBefore(ctx context.Context, number uint64) error {
	names, err := s.c.Exports.List(ctx, exportFolder)
	if err != nil {
		return err
	}
	// The manifests go first: an interrupted removal must not leave a damaged export that
	// counts as complete.
	for _, manifests := range []bool{true, false} {
		for _, name := range names {
			if n := numberOf(name); n > 0 && n < number && strings.HasSuffix(name, "/manifest.json") == manifests {
				if err := s.c.Exports.Delete(ctx, name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func compress(content []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(content)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func decompress(content []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(r, 64<<20))
	if err != nil {
		return nil, err
	}
	return out, r.Close()
}
