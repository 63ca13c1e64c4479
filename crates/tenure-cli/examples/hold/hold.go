// Works under a lock: hold KEY SECONDS
//
// `tenure hold` writes a line of JSON per event and releases when its standard input is closed. That also
// happens when this program dies, whatever killed it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// Hold is a lock that is held. Its context ends when the lock is lost.
type Hold struct {
	context.Context
	Token   uint64
	command *exec.Cmd
	input   io.Closer
	done    chan error
}

type event struct {
	Event string `json:"event"`
	Token string `json:"token"`
}

// Acquire waits for the lock.
func Acquire(ctx context.Context, key string, options ...string) (*Hold, error) {
	arguments := append([]string{"hold"}, options...)
	command := exec.Command("tenure", append(arguments, "--", key)...)
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	events := json.NewDecoder(output)
	for {
		var said event
		if err := events.Decode(&said); err != nil {
			return nil, fmt.Errorf("not acquired: %w", command.Wait())
		}
		if said.Event == "waiting" {
			fmt.Println("waiting")
		}
		if said.Event != "granted" {
			continue
		}
		token, err := strconv.ParseUint(said.Token, 10, 64)
		if err != nil {
			return nil, errors.Join(err, input.Close(), command.Wait())
		}
		held, lost := context.WithCancel(ctx)
		hold := &Hold{held, token, command, input, make(chan error, 1)}
		go func() {
			// Also when tenure ends: nobody renews the lock any more.
			defer lost()
			for events.Decode(&said) == nil && said.Event != "lost" {
			}
			hold.done <- command.Wait()
		}()
		return hold, nil
	}
}

// Release gives the lock back. An error means that it had been lost, or that this could not be told.
func (hold *Hold) Release() error {
	return errors.Join(hold.input.Close(), <-hold.done)
}

func work(key string, seconds float64) error {
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	hold, err := Acquire(context.Background(), key, "--ttl", "3s")
	if err != nil {
		return err
	}
	fmt.Println("granted with token", hold.Token)
	for time.Now().Before(end) {
		// A piece of work; its writes carry the token.
		select {
		case <-hold.Done():
			return errors.New("lost")
		case <-time.After(200 * time.Millisecond):
		}
	}
	if err := hold.Release(); err != nil {
		return fmt.Errorf("lost: %w", err)
	}
	fmt.Println("released")
	return nil
}

func main() {
	seconds, err := strconv.ParseFloat(os.Args[2], 64)
	if err == nil {
		err = work(os.Args[1], seconds)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
