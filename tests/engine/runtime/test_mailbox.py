"""A mailbox holds the newest answer, counts the ones missed, and ends after the last one."""

import threading

from shedder.engine.runtime.mailbox import Mailbox, NewestAnswer
from shedder.errors import UnknownQuery

UPDATES = [UnknownQuery(name, []) for name in "abcd"]


def test_newest_answer_is_taken_once_with_the_number_of_those_missed():
    newest = NewestAnswer()
    assert newest.take() is None
    for update in UPDATES[:3]:
        newest.put(update)
    assert newest.is_there
    assert newest.take() == (UPDATES[2], 2)
    assert newest.take() is None
    newest.put(UPDATES[3])
    assert newest.take() == (UPDATES[3], 0)


def test_reader_gets_the_last_answer_of_a_closed_mailbox_and_then_ends():
    mailbox = Mailbox()
    for update in UPDATES:
        mailbox.put(update)
    mailbox.close()
    assert list(mailbox) == [(UPDATES[3], 3)]


def test_waiting_reader_is_woken_by_an_answer_and_by_the_end():
    mailbox, read, has_read = Mailbox(), [], threading.Event()

    def read_all() -> None:
        for each in mailbox:
            read.append(each)
            has_read.set()

    reader = threading.Thread(target=read_all)
    reader.start()
    mailbox.put(UPDATES[0])
    assert has_read.wait(10)
    mailbox.close()
    reader.join(10)
    assert not reader.is_alive()
    assert read == [(UPDATES[0], 0)]
