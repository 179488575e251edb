package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Versions of event types live in files, one each: <type>.v<version>.json.

const largestTypeFile = 4 << 20

// typeFile is a version in a file.
type typeFile struct {
	path string
	version
}

// version is a version of a type on its way to the registry.
type version = httpclient.NewEventType

func typeFileName(name string, schemaVersion uint32) string {
	return fmt.Sprintf("%s.v%d.json", name, schemaVersion)
}

// encodeType writes a version the one way that files of types are written: members in
// a fixed order, those of schema and examples as they were given.
func encodeType(t version) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(t)
	return b.Bytes(), err
}

// readTypeFile reads a version. Fault types.file_invalid.
func readTypeFile(path string) (typeFile, error) {
	invalid := func(why string) error {
		return fault.New(fault.Invalid, "types.file_invalid", "%s %s; see the registration of event types in the API for its members", path, why).WithField(path)
	}
	f, err := os.Open(path)
	if err != nil {
		return typeFile{}, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, largestTypeFile+1))
	if err != nil {
		return typeFile{}, err
	}
	if len(text) > largestTypeFile {
		return typeFile{}, invalid("is larger than 4 MiB")
	}
	out := typeFile{path: path}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&out.version); err != nil {
		return typeFile{}, invalid("is not the registration of an event type (" + strings.TrimPrefix(oneLine(err), "json: ") + ")")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return typeFile{}, invalid("holds more than one JSON value")
	}
	return out, nil
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// readTypeFiles reads versions in the order in which they can be registered. Each may
// be given once. Fault types.version_repeated.
func readTypeFiles(paths []string) ([]typeFile, error) {
	out := make([]typeFile, len(paths))
	for i, path := range paths {
		var err error
		if out[i], err = readTypeFile(path); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(out, func(a, b typeFile) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), int(a.SchemaVersion)-int(b.SchemaVersion))
	})
	for i := 1; i < len(out); i++ {
		if a, b := out[i-1], out[i]; a.Type == b.Type && a.SchemaVersion == b.SchemaVersion {
			return nil, fault.New(fault.Invalid, "types.version_repeated", "%s and %s hold the same version; keep one of them", a.path, b.path)
		}
	}
	return out, nil
}

// readTypeDirectory reads all files of types in a directory. Each has the name of
// what it holds, so that nobody edits another version than meant. Faults
// types.directory_empty, types.file_misnamed.
func readTypeDirectory(directory string) ([]typeFile, error) {
	paths, err := filepath.Glob(filepath.Join(escapeGlob(directory), "*.json"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		if _, err := os.ReadDir(directory); err != nil {
			return nil, err
		}
		return nil, fault.New(fault.Invalid, "types.directory_empty", "%s holds no <type>.v<version>.json; pull the registry into it, or name another directory", directory)
	}
	files, err := readTypeFiles(paths)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if want := typeFileName(f.Type, f.SchemaVersion); filepath.Base(f.path) != want {
			return nil, fault.New(fault.Invalid, "types.file_misnamed", "%s holds what belongs into %s; rename it", f.path, want)
		}
	}
	return files, nil
}

var globEscapes = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

func escapeGlob(path string) string { return globEscapes.Replace(path) }

// writeTypeFile writes a version unless the file holds just that already. A reader
// never sees half of it.
func writeTypeFile(directory string, r eventtype.Registration) (written bool, err error) {
	if !eventtype.ValidName(r.Type) {
		return false, fault.New(fault.Internal, "client.answer_unreadable", "the server lists a type whose name is none; check the server's address and version")
	}
	text, err := encodeType(httpclient.NewEventTypeOf(r))
	if err != nil {
		return false, err
	}
	path := filepath.Join(directory, typeFileName(r.Type, r.SchemaVersion))
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, text) {
		return false, nil
	}
	f, err := os.CreateTemp(directory, ".type-*")
	if err != nil {
		return false, err
	}
	_, err = f.Write(text)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err == nil, err
}
