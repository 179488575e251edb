package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// spool is a temporary file for a part of an export that comes after what is only known when
// the part is written. So the memory of an export does not grow with its lines.
type spool struct {
	*bufio.Writer
	file *os.File
}

func newSpool() (*spool, error) {
	file, err := os.CreateTemp("", "backbone-export-*")
	if err != nil {
		return nil, fmt.Errorf("temporary file: %w", err)
	}
	return &spool{Writer: bufio.NewWriter(file), file: file}, nil
}

// copyTo writes what the spool holds. Earlier write errors surface here.
func (s *spool) copyTo(out io.Writer) error {
	if err := s.Flush(); err != nil {
		return err
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := io.Copy(out, s.file)
	return err
}

func (s *spool) remove() error { return errors.Join(s.file.Close(), os.Remove(s.file.Name())) }
