"""A mailbox holds the newest answer, counts the ones missed, and ends after the last one."""

import threading

from shedder.engine.runtime.mailbox import Mailbox, NewestAnswer
from shedder.errors import UnknownQuery

NEWS = [UnknownQuery(name, []) for name in "abcd"]


def test_newest_answer_is_taken_once_with_the_number_of_those_missed():
    newest = NewestAnswer()
    assert newest.take() is None
    for news in NEWS[:3]:
        newest.put(news)
    assert newest.is_there
    assert newest.take() == (NEWS[2], 2)
    assert newest.take() is None
    newest.put(NEWS[3])
    assert newest.take() == (NEWS[3], 0)


def test_reader_gets_the_last_answer_of_a_closed_mailbox_and_then_ends():
    mailbox = Mailbox()
    for news in NEWS:
        mailbox.put(news)
    mailbox.close()
    assert list(mailbox) == [(NEWS[3], 3)]


def test_waiting_reader_is_woken_by_an_answer_and_by_the_end():
    mailbox, read, has_read = Mailbox(), [], threading.Event()

    def read_all() -> None:
        for each in mailbox:
            read.append(each)
            has_read.set()

    reader = threading.Thread(target=read_all)
    reader.start()
    mailbox.put(NEWS[0])
    assert has_read.wait(10)
    mailbox.close()
    reader.join(10)
    assert not reader.is_alive()
    assert read == [(NEWS[0], 0)]
